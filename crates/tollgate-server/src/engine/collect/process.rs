//! Metrics of this process, with the names that all Prometheus clients use. Only Linux has them.

use crate::metrics::Exposition;

/// Writes what the system reports; nothing if it reports nothing.
pub(super) fn collect(out: &mut Exposition) {
    #[cfg(target_os = "linux")]
    if linux::collect(out).is_err() {
        tracing::debug!("/proc cannot be read; there are no process metrics");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = out;
}

#[cfg(target_os = "linux")]
mod linux {
    use procfs::process::{LimitValue, Process};
    use procfs::{ProcResult, WithCurrentSystemInfo};

    use crate::metrics::{Exposition, Kind, seconds};

    pub(super) fn collect(out: &mut Exposition) -> ProcResult<()> {
        let this = Process::myself()?;
        let stat = this.stat()?;
        let ticks = u128::from(procfs::ticks_per_second());
        let nanos = |in_ticks: u64| u128::from(in_ticks) * 1_000_000_000 / ticks.max(1);
        out.value(
            "process_cpu_seconds_total",
            Kind::Counter,
            "User and system CPU time.",
            seconds(nanos(stat.utime.saturating_add(stat.stime))),
        );
        let started = u128::from(procfs::boot_time_secs()?) * 1_000_000_000 + nanos(stat.starttime);
        out.value(
            "process_start_time_seconds",
            Kind::Gauge,
            "Start of the process, in seconds since 1970.",
            seconds(started),
        );
        out.value(
            "process_virtual_memory_bytes",
            Kind::Gauge,
            "Virtual memory.",
            stat.vsize,
        );
        out.value(
            "process_resident_memory_bytes",
            Kind::Gauge,
            "Resident memory.",
            stat.rss_bytes().get(),
        );
        out.value("process_threads", Kind::Gauge, "Threads.", stat.num_threads);
        out.value(
            "process_open_fds",
            Kind::Gauge,
            "Open file descriptors.",
            this.fd_count()?,
        );
        if let LimitValue::Value(limit) = this.limits()?.max_open_files.soft_limit {
            out.value(
                "process_max_fds",
                Kind::Gauge,
                "Limit of open file descriptors.",
                limit,
            );
        }
        Ok(())
    }
}
