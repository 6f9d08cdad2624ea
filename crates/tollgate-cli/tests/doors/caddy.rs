//! Behind Caddy, with `forward_auth` and the recipe of `examples/caddy`.

use crate::harness::caddy;

use crate::proxied;

#[test]
fn behind_caddy_requests_pass_until_the_limit_and_refused_ones_reach_nobody() {
    proxied::passes_and_refuses(caddy);
}

#[test]
fn behind_caddy_a_client_cannot_spoof_who_it_is_or_what_it_asks() {
    proxied::is_not_spoofed(caddy);
    proxied::repeats_are_not_believed(caddy);
}

#[test]
fn behind_caddy_no_spelling_of_a_path_has_a_bucket_of_its_own() {
    proxied::spellings_share_a_bucket(caddy);
}

#[test]
fn caddy_answers_502_while_the_limiter_is_away_and_serves_again_with_what_was_counted() {
    assert_eq!(proxied::survives_its_limiter(caddy), 502);
}
