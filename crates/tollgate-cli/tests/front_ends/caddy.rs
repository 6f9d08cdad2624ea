//! Behind Caddy, with `forward_auth` and the recipe of `examples/caddy`.

use crate::harness::caddy;

use crate::proxied;

#[test]
fn behind_caddy_requests_pass_until_the_limit_and_refused_ones_reach_no_upstream() {
    proxied::passes_and_refuses(caddy);
}

#[test]
fn behind_caddy_a_client_cannot_spoof_its_address_or_request() {
    proxied::is_not_spoofed(caddy);
    proxied::repeated_headers_are_rejected(caddy);
}

#[test]
fn behind_caddy_no_spelling_of_a_path_has_a_bucket_of_its_own() {
    proxied::spellings_share_a_bucket(caddy);
}

#[test]
fn caddy_answers_502_while_the_limiter_is_away_and_serves_again_with_what_was_counted() {
    assert_eq!(proxied::survives_its_limiter(caddy), 502);
}
