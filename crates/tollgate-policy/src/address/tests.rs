//! Client addresses: networks and proxies.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::HashSet;

use super::super::path::tests::Random;
use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn set(networks: &[&str]) -> CidrSet {
    networks.iter().map(|n| n.parse().unwrap()).collect()
}

fn proxies(header: ForwardedHeader) -> Proxies {
    Proxies {
        trusted: set(&["10.0.0.0/8", "fd00::/8"]),
        header,
    }
}

/// The client of a request from a proxy with these lines of the header.
fn client(header: ForwardedHeader, lines: &[&str]) -> String {
    let headers: Vec<(&str, &str)> = lines.iter().map(|line| (header.name(), *line)).collect();
    let found = proxies(header).client(ip("10.0.0.1"), &Lines(&headers));
    found.to_string()
}

struct Lines<'a>(&'a [(&'a str, &'a str)]);

impl super::super::facts::Headers for Lines<'_> {
    fn visit<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        self.0.visit(name, each);
    }
}

#[test]
fn networks_are_parsed_and_printed_in_usual_notation() {
    for (text, shown) in [
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1/32", "192.0.2.1"),
        ("2001:DB8::/32", "2001:db8::/32"),
        ("::1", "::1"),
        ("::/0", "::/0"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::ffff:0:0/96", "0.0.0.0/0"),
        (" 10.0.0.0/8 ", "10.0.0.0/8"),
    ] {
        let network: Cidr = text.parse().unwrap();
        assert_eq!(network.to_string(), shown);
        assert_eq!(shown.parse(), Ok(network));
    }
}

#[test]
fn texts_that_are_no_networks_are_refused() {
    let meant = |text: &str| CidrError::HostBits { meant: text.into() };
    for (text, error) in [
        ("", CidrError::Address),
        ("10.0.0/8", CidrError::Address),
        ("10.0.0.256", CidrError::Address),
        ("example.com", CidrError::Address),
        ("fe80::1%eth0", CidrError::Address),
        ("10.0.0.0/", CidrError::Bits),
        ("10.0.0.0/33", CidrError::Bits),
        ("10.0.0.0/+8", CidrError::Bits),
        ("10.0.0.0/255.0.0.0", CidrError::Bits),
        ("::/129", CidrError::Bits),
        ("10.0.0.1/8", meant("10.0.0.0/8")),
        ("2001:db8::1/32", meant("2001:db8::/32")),
        ("::ffff:10.0.0.1/104", meant("10.0.0.0/8")),
        ("::ffff:10.0.0.1/64", meant("::/64")),
    ] {
        assert_eq!(text.parse::<Cidr>(), Err(error.clone()), "{text}");
        assert!(!error.to_string().is_empty() && !error.hint().is_empty());
    }
}

#[test]
fn a_set_holds_what_one_of_its_networks_holds() {
    let mut random = Random(3);
    for _ in 0..2000 {
        let mut networks = Vec::new();
        for _ in 0..random.below(8) {
            // Close together, so that they touch and overlap.
            let v4 = IpAddr::V4(Ipv4Addr::from_bits(random.next() as u32 & 0xff));
            let v6 = IpAddr::V6(Ipv6Addr::from_bits(u128::from(random.next() & 0xff) << 60));
            networks.push(Cidr::containing(v4, 24 + random.below(9) as u8));
            networks.push(Cidr::containing(v6, 56 + random.below(13) as u8));
        }
        let set = CidrSet::new(networks.clone());
        assert!(set.v4.windows(2).all(|w| w[0].1 + 1 < w[1].0));
        for _ in 0..50 {
            let bits = random.next() as u32 & 0x1ff;
            for address in [
                IpAddr::V4(Ipv4Addr::from_bits(bits)),
                IpAddr::V6(Ipv4Addr::from_bits(bits).to_ipv6_mapped()),
                IpAddr::V6(Ipv6Addr::from_bits(u128::from(bits) << 59)),
            ] {
                let expected = networks.iter().any(|n| n.contains(address));
                assert_eq!(set.contains(address), expected);
            }
        }
    }
    let all = set(&["0.0.0.0/0", "255.255.255.255", "::/0", "ffff::/16"]);
    assert!(all.contains(ip("255.255.255.255")) && all.contains(ip("ffff::")));
    assert_eq!(
        (all.v4.len(), all.v6.len(), all.networks().len()),
        (1, 1, 4)
    );
    assert!(!set(&["::/0"]).contains(ip("192.0.2.1")));
    assert!(CidrSet::default().is_empty() && !CidrSet::default().contains(ip("::1")));
}

#[test]
fn no_two_ipv4_clients_share_a_key_and_all_forms_are_equal() {
    let mut random = Random(4);
    let mut seen = HashSet::new();
    let mut keys = HashSet::new();
    for _ in 0..100_000 {
        let v4 = Ipv4Addr::from_bits(random.next() as u32);
        let key = masked(v4.into(), 32, 64);
        assert_eq!(masked(v4.to_ipv6_mapped().into(), 32, 64), key);
        assert_eq!(key, IpAddr::V4(v4));
        seen.insert(v4);
        keys.insert(key);
    }
    assert_eq!(seen.len(), keys.len());
}

#[test]
fn an_ipv6_network_is_one_client() {
    let base = 0x2001_0db8_0001_0002_u128 << 64;
    let first = masked(Ipv6Addr::from_bits(base).into(), 32, 64);
    for low in 0..65_536_u128 {
        let address = Ipv6Addr::from_bits(base | low << 48 | low);
        assert_eq!(masked(address.into(), 32, 64), first);
    }
    assert_ne!(masked(ip("2001:db8:1:3::"), 32, 64), first);
    assert_eq!(masked(ip("2001:db8:1:3::"), 32, 48), masked(first, 32, 48));
    assert_eq!(masked(ip("192.0.2.1"), 0, 0), ip("0.0.0.0"));
    assert_eq!(masked(ip("192.0.2.1"), 200, 200), ip("192.0.2.1"));
}

#[test]
fn a_network_shows_its_bits_only_if_some_do_not_count() {
    assert_eq!(network_text(ip("203.0.113.7"), 32, 64), "203.0.113.7");
    assert_eq!(
        network_text(ip("::ffff:203.0.113.7"), 32, 64),
        "203.0.113.7"
    );
    assert_eq!(network_text(ip("203.0.113.7"), 24, 64), "203.0.113.0/24");
    let v6 = ip("2001:db8:1:2:3::4");
    assert_eq!(network_text(v6, 32, 64), "2001:db8:1:2::/64");
    assert_eq!(network_text(v6, 32, 128), "2001:db8:1:2:3::4");
}

#[test]
fn the_first_address_from_the_right_that_is_no_proxy_is_the_client() {
    use ForwardedHeader::XForwardedFor as Xff;
    for (lines, expected) in [
        (&[][..], "10.0.0.1"),
        (&["203.0.113.7"], "203.0.113.7"),
        (&["6.6.6.6, 203.0.113.7"], "203.0.113.7"),
        (&["6.6.6.6, 203.0.113.7, 10.0.0.2,10.0.0.3"], "203.0.113.7"),
        (&["6.6.6.6", "203.0.113.7", "10.0.0.2"], "203.0.113.7"),
        (&["10.0.0.4, 10.0.0.3"], "10.0.0.4"),
        (&["203.0.113.7:4711"], "203.0.113.7"),
        (&["[2001:db8::1]:4711"], "2001:db8::1"),
        (&["[2001:db8::1]"], "2001:db8::1"),
        (&["2001:db8::1"], "2001:db8::1"),
        (&["fe80::1%eth0"], "fe80::1"),
        (&["[fe80::1%25eth0]:1"], "fe80::1"),
        (&["::ffff:203.0.113.7"], "203.0.113.7"),
        (&["6.6.6.6, ::ffff:10.0.0.9"], "6.6.6.6"),
        (&["203.0.113.7, , 10.0.0.2,"], "203.0.113.7"),
        (&["203.0.113.7", ""], "203.0.113.7"),
        (&["203.0.113.7, unknown, 10.0.0.2"], "10.0.0.2"),
        (&["203.0.113.7, _hidden"], "10.0.0.1"),
        (&["unknown"], "10.0.0.1"),
        (&["garbage, 203.0.113.7"], "203.0.113.7"),
        (&["203.0.113.7:99999"], "10.0.0.1"),
        (&["203.0.113.7:"], "10.0.0.1"),
        (&["203.0.113.7:+1"], "10.0.0.1"),
        (&["[203.0.113.7]"], "10.0.0.1"),
        (&["[2001:db8::1"], "10.0.0.1"),
        (&["[2001:db8::1]x"], "10.0.0.1"),
        (&["2001:db8::1%"], "10.0.0.1"),
        (&["203.0.113.007"], "10.0.0.1"),
        (&["203.0.113.7 6.6.6.6"], "10.0.0.1"),
        (&["\u{e9}"], "10.0.0.1"),
    ] {
        assert_eq!(client(Xff, lines), expected, "{lines:?}");
    }
}

#[test]
fn forwarded_is_read_as_its_standard_says() {
    use ForwardedHeader::Forwarded;
    for (lines, expected) in [
        (&["for=203.0.113.7"][..], "203.0.113.7"),
        (&["For=203.0.113.7;proto=http;by=10.0.0.1"], "203.0.113.7"),
        (&["proto=http; FOR=\"203.0.113.7:1\" ;by=x"], "203.0.113.7"),
        (&["for=\"[2001:db8::1]:4711\""], "2001:db8::1"),
        (
            &["for=6.6.6.6, for=203.0.113.7, for=10.0.0.2"],
            "203.0.113.7",
        ),
        (
            &["for=6.6.6.6", "for=203.0.113.7", "for=10.0.0.2"],
            "203.0.113.7",
        ),
        (&["for=203.0.113.7;by=\"a,b;for=6.6.6.6\""], "203.0.113.7"),
        (&["for=203.0.113.7;by=\"a\\\",for=6.6.6.6\""], "203.0.113.7"),
        (
            &["for=203.0.113.7;by=\"a\\\\\", for=10.0.0.2"],
            "203.0.113.7",
        ),
        (&["for=\"6.6.6.6, for=203.0.113.7"], "203.0.113.7"),
        (&["for=203.0.113.7;host=\"x", "for=10.0.0.2"], "203.0.113.7"),
        (&["for=\"10.0.0.2:_port\""], "10.0.0.2"),
        (&["for=203.0.113.7, for=unknown, for=10.0.0.2"], "10.0.0.2"),
        (&["for=203.0.113.7, for=_hidden"], "10.0.0.1"),
        (&["for=203.0.113.7, proto=https"], "10.0.0.1"),
        (&["for=203.0.113.7;for=6.6.6.6"], "10.0.0.1"),
        (&["203.0.113.7"], "10.0.0.1"),
        (&["for="], "10.0.0.1"),
        (&["for=\""], "10.0.0.1"),
        (&[";;;", ",,,"], "10.0.0.1"),
    ] {
        assert_eq!(client(Forwarded, lines), expected, "{lines:?}");
    }
}

#[test]
fn the_one_address_of_x_real_ip_is_one_or_none() {
    use ForwardedHeader::XRealIp;
    assert_eq!(client(XRealIp, &["203.0.113.7"]), "203.0.113.7");
    assert_eq!(client(XRealIp, &[" 2001:db8::1 "]), "2001:db8::1");
    assert_eq!(client(XRealIp, &[]), "10.0.0.1");
    assert_eq!(client(XRealIp, &["203.0.113.7", "203.0.113.7"]), "10.0.0.1");
    assert_eq!(client(XRealIp, &["203.0.113.7, 6.6.6.6"]), "10.0.0.1");
    assert_eq!(client(XRealIp, &[""]), "10.0.0.1");
}

#[test]
fn only_the_chosen_header_is_read() {
    let headers = [
        ("X-Forwarded-For", "1.1.1.1"),
        ("Forwarded", "for=2.2.2.2"),
        ("X-Real-IP", "3.3.3.3"),
    ];
    for (header, expected) in [
        (ForwardedHeader::XForwardedFor, "1.1.1.1"),
        (ForwardedHeader::Forwarded, "2.2.2.2"),
        (ForwardedHeader::XRealIp, "3.3.3.3"),
    ] {
        assert_eq!(
            proxies(header).client(ip("10.0.0.1"), &headers),
            ip(expected)
        );
    }
}

#[test]
fn a_mapped_peer_is_the_proxy_that_it_is() {
    let headers = [("x-forwarded-for", "203.0.113.7")];
    let proxies = proxies(ForwardedHeader::XForwardedFor);
    assert_eq!(
        proxies.client(ip("::ffff:10.0.0.1"), &headers),
        ip("203.0.113.7")
    );
    assert_eq!(
        proxies.client(ip("::ffff:192.0.2.1"), &headers),
        ip("192.0.2.1")
    );
}

#[test]
fn a_list_without_end_is_looked_at_only_at_its_end() {
    use ForwardedHeader::XForwardedFor as Xff;
    let far = format!("203.0.113.7{}", ", 10.0.0.2".repeat(64));
    assert_eq!(client(Xff, &[&far]), "10.0.0.2");
    let near = format!("203.0.113.7{}", ", 10.0.0.2".repeat(63));
    assert_eq!(client(Xff, &[&near]), "203.0.113.7");
    let mut lines = vec!["203.0.113.7"];
    lines.extend(["10.0.0.2"; 63]);
    assert_eq!(client(Xff, &lines), "203.0.113.7");
    lines.push("10.0.0.3");
    assert_eq!(client(Xff, &lines), "10.0.0.2");
    assert_eq!(client(Xff, &[&",".repeat(100_000)]), "10.0.0.1");
}

#[test]
fn an_untrusted_peer_is_the_client_whatever_its_headers_say() {
    let mut random = Random(5);
    let peer = ip("198.51.100.9");
    let proxies = proxies(ForwardedHeader::XForwardedFor);
    for _ in 0..100_000 {
        let said = format!(
            "{}, {}",
            Ipv4Addr::from_bits(random.next() as u32),
            random.pick(&["10.0.0.1", "127.0.0.1", "", "unknown", "198.51.100.9"]),
        );
        let headers = [("x-forwarded-for", said.as_str()), ("x-real-ip", "6.6.6.6")];
        assert_eq!(proxies.client(peer, &headers), peer);
    }
}

/// A simple reference implementation of the walk.
fn reference(trusted: &CidrSet, peer: IpAddr, entries: &[Option<IpAddr>]) -> IpAddr {
    let mut chain: Vec<Option<IpAddr>> = entries.to_vec();
    chain.push(Some(peer));
    let mut client = peer;
    while let Some(Some(address)) = chain.pop() {
        client = address;
        if !trusted.contains(client) {
            break;
        }
    }
    client
}

#[test]
fn random_chains_are_walked_as_the_reference_walks_them() {
    let mut random = Random(6);
    let spellings = [
        ("10.0.0.7", Some("10.0.0.7")),
        ("10.0.0.8:80", Some("10.0.0.8")),
        ("::ffff:10.1.2.3", Some("10.1.2.3")),
        ("fd00::1", Some("fd00::1")),
        ("[fd00::2%1]:9", Some("fd00::2")),
        ("192.0.2.1", Some("192.0.2.1")),
        ("[2001:db8::5]", Some("2001:db8::5")),
        ("unknown", None),
        ("_x", None),
    ];
    for header in [ForwardedHeader::XForwardedFor, ForwardedHeader::Forwarded] {
        let proxies = proxies(header);
        for _ in 0..50_000 {
            let peer = ip(random.pick(&["10.0.0.1", "10.0.0.2", "192.0.2.77", "::ffff:10.0.0.3"]));
            let mut lines: Vec<String> = Vec::new();
            let mut entries = Vec::new();
            for _ in 0..random.below(7) {
                let (text, address) = spellings[random.below(spellings.len())];
                entries.push(address.map(ip));
                let entry = match header {
                    ForwardedHeader::Forwarded => format!("by=\"a,b\";for=\"{text}\""),
                    _ => text.into(),
                };
                match lines.last_mut() {
                    Some(line) if random.one_in(2) => *line += &format!(", {entry}"),
                    _ => lines.push(entry),
                }
            }
            let headers: Vec<(&str, &str)> =
                lines.iter().map(|l| (header.name(), l.as_str())).collect();
            let expected = reference(&proxies.trusted, peer.to_canonical(), &entries);
            assert_eq!(
                proxies.client(peer, &Lines(&headers)),
                expected,
                "{peer} {lines:?}"
            );
        }
    }
}

#[test]
fn no_header_however_broken_makes_a_panic() {
    let mut random = Random(7);
    let pieces = [
        "for", "=", "\"", "\\", ",", ";", "[", "]", ":", "%", "1.2.3.4", "::", "10.0.0.1", " ",
        "_", "\u{fffd}",
    ];
    for header in [
        ForwardedHeader::XForwardedFor,
        ForwardedHeader::Forwarded,
        ForwardedHeader::XRealIp,
    ] {
        for _ in 0..50_000 {
            let line: String = (0..random.below(12))
                .map(|_| random.pick(&pieces))
                .collect();
            client(header, &[&line]);
        }
    }
}

#[test]
fn a_client_behind_nat64_is_counted_by_its_ipv4_address() {
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    assert_eq!(
        masked(address("64:ff9b::203.0.113.7"), 32, 64),
        address("203.0.113.7")
    );
    assert_eq!(
        network_text(address("64:ff9b::203.0.113.7"), 24, 64),
        "203.0.113.0/24"
    );
    let network: Cidr = "203.0.113.0/24".parse().unwrap();
    assert!(network.contains(address("64:ff9b::203.0.113.7")));
    assert!(CidrSet::new(vec![network]).contains(address("64:ff9b::203.0.113.7")));
    // The prefix never stands for an address that is not global (RFC 6052, 3.1), nor does another prefix.
    for other in [
        "64:ff9b::127.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b::0.0.0.0",
        "64:ff9b:1::203.0.113.7",
    ] {
        assert!(masked(address(other), 32, 64).is_ipv6(), "{other}");
    }
}
