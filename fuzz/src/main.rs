//! `tollgate-fuzz`: runs the targets over their seeds and over random mutations of them.
//!
//! Built with `--cfg fuzzing` it is libFuzzer instead, for the target that `TOLLGATE_FUZZ` names.

#![cfg_attr(fuzzing, no_main)]

#[cfg(not(fuzzing))]
mod drive;

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    drive::main()
}

#[cfg(fuzzing)]
mod guided {
    use std::sync::LazyLock;

    use tollgate_fuzz::Target;

    static TARGET: LazyLock<&Target> = LazyLock::new(|| {
        let name = std::env::var("TOLLGATE_FUZZ").unwrap_or_default();
        match tollgate_fuzz::named(&name) {
            Some(target) => target,
            None => panic!("TOLLGATE_FUZZ names no target; `tollgate-fuzz list` names all"),
        }
    });

    libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
}
