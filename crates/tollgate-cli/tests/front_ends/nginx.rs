//! Behind nginx, with `auth_request` and the recipe of `examples/nginx`.

use crate::harness::{Upstream, nginx, nginx_with, serve};

use crate::proxied;

#[test]
fn behind_nginx_requests_pass_until_the_limit_and_refused_ones_reach_no_upstream() {
    proxied::passes_and_refuses(nginx);
}

#[test]
fn behind_nginx_a_client_cannot_spoof_its_address_or_request() {
    proxied::is_not_spoofed(nginx);
    proxied::repeated_headers_are_rejected(nginx);
}

#[test]
fn behind_nginx_no_spelling_of_a_path_has_a_bucket_of_its_own() {
    proxied::spellings_share_a_bucket(nginx);
}

#[test]
fn behind_nginx_methods_hosts_and_other_refusals_are_reported() {
    proxied::sees_the_original_request(nginx, "shop.example");
}

#[test]
fn behind_nginx_the_body_of_a_refusal_has_its_type_whatever_the_path_ends_with() {
    let setting = proxied::Setting::new(nginx);
    let mut client = setting.proxy.client();
    let ann = [("X-User", "ann")];
    for _ in 0..3 {
        client.get_with("/user/a.html", &ann).expect(200);
    }
    for path in ["/user/a.html", "/user/a.png", "/user/a"] {
        let refused = client.get_with(path, &ann).expect(429);
        assert_eq!(
            refused.must("content-type"),
            "application/problem+json",
            "{path}"
        );
    }
}

#[test]
fn nginx_answers_500_while_the_limiter_is_away_and_serves_again_with_what_was_counted() {
    assert_eq!(proxied::survives_its_limiter(nginx), 500);
}

#[test]
fn nginx_can_let_everything_pass_while_the_limiter_is_away() {
    let limiter = serve(proxied::POLICY);
    let upstream = Upstream::start();
    let proxy = nginx_with(limiter.port(), upstream.port(), |recipe| {
        let line = "error_page 502 504 = @away;";
        assert!(recipe.contains(&format!("# {line}")));
        recipe.replace(&format!("# {line}"), line)
    });
    let mut client = proxy.client();
    let ann = [("X-User", "ann")];
    for status in [200, 200, 200, 429] {
        client.get_with("/user/a", &ann).expect(status);
    }
    limiter.kill();
    for _ in 0..5 {
        client.get_with("/user/a", &ann).expect(200);
    }
}

#[test]
fn behind_nginx_admitted_requests_get_rate_limit_fields() {
    let setting = proxied::Setting::new(nginx);
    let mut client = setting.proxy.client();
    let passed = client.get_with("/user/a", &[("X-User", "ann")]).expect(200);
    assert_eq!(passed.must("ratelimit"), r#""per-user";r=2;t=7200"#);
    assert_eq!(passed.must("ratelimit-policy"), r#""per-user";q=3;w=10800"#);
    let free = client.get("/free").expect(200);
    assert_eq!(free.header("ratelimit"), None);
}
