//! The channel in real time: never more than the rate, whatever comes in and however it is taken out.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::{Clock, MonotonicClock, Span};
use tollgate_tower::channel::{Receiver, SendError, Sender, Settings, channel, channel_on};

fn of<T>(rate: &str, queue: u64) -> (Sender<T>, Receiver<T>) {
    channel(&Settings::new(rate.parse().unwrap(), queue)).unwrap()
}

#[tokio::test]
async fn items_come_out_in_order_and_never_faster_than_the_rate() {
    let clock = MonotonicClock::new();
    let settings = Settings::new("2000/s".parse().unwrap(), 1000);
    let (sender, mut receiver) = channel_on(&settings, clock.clone()).unwrap();
    for i in 0..200 {
        sender.try_send(i).unwrap();
    }
    drop(sender);
    let began = clock.now();
    let (mut items, mut slowest) = (Vec::new(), 0);
    while let Some(item) = receiver.recv().await {
        items.push(item);
        slowest = clock.now().since(began).as_nanos();
    }
    assert_eq!(items, (0..200).collect::<Vec<_>>());
    assert!(slowest >= 199 * 500_000, "too fast: {slowest} ns");
}

/// The golden timeline a hundred times smaller and twice as fast: 40, 25, 32 and 60 arrivals half a second
/// apart, 60 a second out of a queue of 50.
#[tokio::test]
async fn the_golden_timeline_in_real_time() {
    let clock = MonotonicClock::new();
    let settings = Settings::new("60/s".parse().unwrap(), 50).catch_up(Span::from_secs(1));
    let (sender, mut receiver) = channel_on(&settings, clock.clone()).unwrap();
    let began = clock.now();
    let out = tokio::spawn({
        let clock = clock.clone();
        async move {
            let mut out = Vec::new();
            while receiver.recv().await.is_some() {
                out.push(clock.now().since(began).as_nanos());
            }
            out
        }
    });
    let (mut taken, mut refused) = (0, Vec::new());
    for (at, arrivals) in (0_u64..).zip([40, 25, 32, 60]) {
        let due = Duration::from_millis(at * 500);
        let gone: Duration = clock.now().since(began).into();
        tollgate_tower::slots::sleep(due.saturating_sub(gone)).await;
        let sent: Vec<_> = (0..arrivals).map(|_| sender.try_send(())).collect();
        refused.push(sent.iter().filter(|sent| sent.is_err()).count());
        taken += sent.iter().filter(|sent| sent.is_ok()).count();
    }
    drop(sender);
    let out = out.await.unwrap();
    assert_eq!(out.len(), taken);
    assert_eq!(refused[..3], [0, 0, 0]);
    // 17, give or take what a busy machine does within 50 ms.
    assert!((14..=20).contains(&refused[3]), "{refused:?}");
    let last = *out.last().unwrap();
    // Empty after 2.333 s; the last starts a unit before.
    assert!(last >= 2_260_000_000, "the last went after {last} ns");
}

#[tokio::test]
async fn a_full_channel_gives_the_item_back_and_says_when_to_come() {
    let (sender, mut receiver) = of("10/s", 2);
    sender.try_send("a").unwrap();
    sender.try_send("b").unwrap();
    assert_eq!(receiver.recv().await, Some("a"));
    match sender.try_send("c").unwrap_err() {
        SendError::Full { item, retry_after } => {
            assert_eq!(item, "c");
            assert!(retry_after <= Span::from_millis(100));
        }
        other => panic!("{other}"),
    }
    assert_eq!(
        sender.try_send_cost(3, "d").unwrap_err(),
        SendError::Never("d")
    );
}

#[tokio::test]
async fn a_receive_that_is_dropped_while_it_waits_loses_nothing() {
    let (sender, mut receiver) = of("50/s", 10);
    for i in 0..5 {
        sender.try_send(i).unwrap();
    }
    drop(sender);
    let mut got = Vec::new();
    loop {
        let short = tokio::time::timeout(Duration::from_millis(3), receiver.recv());
        match short.await {
            Ok(Some(item)) => got.push(item),
            Ok(None) => break,
            Err(_) => {}
        }
    }
    assert_eq!(got, [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn senders_that_wait_get_room_in_order_and_all_come_through() {
    let (sender, mut receiver) = of("1000/s", 2);
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut senders = Vec::new();
    for i in 0..20 {
        let (sender, order) = (sender.clone(), Arc::clone(&order));
        senders.push(tokio::spawn(async move {
            sender.send(i).await.unwrap();
            order.lock().unwrap().push(i);
        }));
        tokio::task::yield_now().await;
    }
    drop(sender);
    let mut got = Vec::new();
    while let Some(item) = receiver.recv().await {
        got.push(item);
    }
    assert_eq!(got, (0..20).collect::<Vec<_>>());
    assert_eq!(order.lock().unwrap().len(), 20);
}

#[tokio::test]
async fn it_ends_as_channels_do() {
    // The receiver goes: senders get their items back, also those that wait.
    let (sender, receiver) = of("1/s", 1);
    sender.try_send(1).unwrap();
    let waits = tokio::spawn({
        let sender = sender.clone();
        async move { sender.send(2).await }
    });
    tokio::task::yield_now().await;
    drop(receiver);
    assert_eq!(waits.await.unwrap().unwrap_err(), SendError::Closed(2));
    assert_eq!(sender.try_send(3).unwrap_err(), SendError::Closed(3));
    assert!(sender.is_closed());

    // It is closed: what waits still comes out.
    let (sender, mut receiver) = of("1000/s", 10);
    sender.try_send(1).unwrap();
    sender.try_send(2).unwrap();
    receiver.close();
    assert_eq!(sender.try_send(3).unwrap_err(), SendError::Closed(3));
    assert_eq!(receiver.recv().await, Some(1));
    assert_eq!(receiver.recv().await, Some(2));
    assert_eq!(receiver.recv().await, None);

    // The last sender goes while it waits for an item.
    let (sender, mut receiver) = of::<u8>("1000/s", 10);
    let ends = tokio::spawn(async move { receiver.recv().await });
    tokio::task::yield_now().await;
    drop(sender);
    assert_eq!(ends.await.unwrap(), None);
}

#[tokio::test]
async fn items_that_hold_their_own_channel_do_not_stop_it_from_ending() {
    let (sender, receiver) = of::<Box<dyn std::any::Any + Send>>("1/s", 10);
    let inner = sender.clone();
    sender.try_send(Box::new(inner)).unwrap();
    drop(receiver);
    assert!(sender.is_closed());
}

#[tokio::test]
async fn workers_run_one_for_each_item_and_no_more_at_once_than_they_may() {
    let clock = MonotonicClock::new();
    let (sender, receiver) = of("1000/s", 100);
    let seen = Arc::new(Mutex::new((0_u32, 0_u32, Vec::new())));
    for i in 0..30 {
        sender.try_send(i).unwrap();
    }
    drop(sender);
    let log = Arc::clone(&seen);
    receiver
        .drain(3, move |item: u32| {
            let (log, clock) = (Arc::clone(&log), clock.clone());
            log.lock().unwrap().0 += 1;
            log.lock().unwrap().2.push((item, clock.now().as_nanos()));
            async move {
                {
                    let mut log = log.lock().unwrap();
                    log.1 = log.1.max(log.0);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
                log.lock().unwrap().0 -= 1;
            }
        })
        .await;
    let seen = seen.lock().unwrap();
    assert_eq!((seen.0, seen.1), (0, 3), "all done; three at once");
    let items: Vec<_> = seen.2.iter().map(|(item, _)| *item).collect();
    assert_eq!(items, (0..30).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_receiver_that_stalls_gets_no_burst_afterwards() {
    let clock = MonotonicClock::new();
    let (sender, mut receiver) = of("1000/s", 100);
    for i in 0..60 {
        sender.try_send(i).unwrap();
    }
    drop(sender);
    let began = clock.now();
    let mut taken = 0;
    while receiver.recv().await.is_some() {
        taken += 1;
        if taken == 20 {
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }
    // The slots alone would be over after 60 ms: the 30 ms are not made good.
    let took = clock.now().since(began);
    assert!(took >= Span::from_millis(58 + 30), "{took}");
}
