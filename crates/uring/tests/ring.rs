//! The ring on real sockets. Where the kernel does not allow io_uring there is nothing to test.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use weir_testkit::not_run;
use weir_uring::{Buffer, Completion, Ring};

const POLLIN: u32 = 1;

fn ring(buffers: u16, bytes: u32) -> Option<Ring> {
    match Ring::new(buffers, bytes) {
        Ok(ring) => Some(ring),
        Err(error) => {
            not_run("the ring of io_uring", &error.to_string());
            None
        }
    }
}

/// Waits for the next completion.
fn next(ring: &mut Ring) -> Completion {
    for _ in 0..100 {
        if let Some(completion) = ring.next_completion() {
            return completion;
        }
        ring.wait(1, Duration::from_millis(100)).expect("the ring waits");
    }
    panic!("nothing happens");
}

#[test]
fn bytes_arrive_in_buffers_until_the_peer_closes() {
    let Some(mut ring) = ring(4, 16) else { return };
    let (mut near, far) = UnixStream::pair().unwrap();
    ring.receive(far.as_fd(), 7).unwrap();
    let mut got = Vec::new();
    for piece in ["first", "second", "a piece longer than one of the ring's buffers"] {
        near.write_all(piece.as_bytes()).unwrap();
        let wanted = got.len() + piece.len();
        while got.len() < wanted {
            let Completion::Received { token: 7, bytes: Ok(Some(buffer)), .. } = next(&mut ring) else {
                panic!()
            };
            got.extend_from_slice(ring.bytes(&buffer));
            ring.recycle(buffer);
        }
    }
    assert_eq!(got, b"firstseconda piece longer than one of the ring's buffers");
    drop(near);
    let Completion::Received { bytes: Ok(None), more: false, .. } = next(&mut ring) else { panic!() };
}

#[test]
fn without_a_free_buffer_receiving_ends_and_can_be_begun_again() {
    let Some(mut ring) = ring(2, 8) else { return };
    let (mut near, far) = UnixStream::pair().unwrap();
    ring.receive(far.as_fd(), 1).unwrap();
    near.write_all(&[1; 64]).unwrap();
    let mut held = Vec::new();
    loop {
        match next(&mut ring) {
            Completion::Received { bytes: Ok(Some(buffer)), more: true, .. } => held.push(buffer),
            Completion::Received { bytes: Err(error), more: false, .. } => {
                assert_eq!(error.raw_os_error(), Some(105), "{error}");
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    let mut count: usize = held.iter().map(|buffer| ring.bytes(buffer).len()).sum();
    for buffer in held {
        ring.recycle(buffer);
    }
    ring.receive(far.as_fd(), 1).unwrap();
    while count < 64 {
        match next(&mut ring) {
            Completion::Received { bytes: Ok(Some(buffer)), .. } => {
                count += ring.bytes(&buffer).len();
                ring.recycle(buffer);
            }
            Completion::Received { more: false, .. } => {
                ring.receive(far.as_fd(), 1).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(count, 64);
}

#[test]
fn a_cancelled_receive_ends_and_takes_nothing_more() {
    let Some(mut ring) = ring(4, 16) else { return };
    let (mut near, mut far) = UnixStream::pair().unwrap();
    let receive = ring.receive(far.as_fd(), 1).unwrap();
    ring.submit().unwrap();
    ring.cancel(receive).unwrap();
    let Completion::Received { bytes: Err(error), more: false, .. } = next(&mut ring) else { panic!() };
    assert_eq!(error.raw_os_error(), Some(125), "{error}");
    ring.cancel(receive).unwrap();
    near.write_all(b"later").unwrap();
    ring.wait(1, Duration::from_millis(20)).unwrap();
    assert!(ring.next_completion().is_none());
    let mut later = [0; 5];
    far.read_exact(&mut later).unwrap();
    assert_eq!(&later, b"later");
}

#[test]
fn a_wait_for_more_than_comes_ends_with_what_has_come() {
    let Some(mut ring) = ring(4, 16) else { return };
    let (mut near, far) = UnixStream::pair().unwrap();
    ring.receive(far.as_fd(), 1).unwrap();
    near.write_all(b"one").unwrap();
    ring.wait(2, Duration::from_millis(20)).unwrap();
    let Completion::Received { bytes: Ok(Some(buffer)), .. } = next(&mut ring) else { panic!() };
    assert_eq!(ring.bytes(&buffer), b"one");
}

#[test]
fn a_send_is_complete_when_the_peer_has_taken_all_of_it() {
    let Some(mut ring) = ring(4, 16) else { return };
    let (near, mut far) = UnixStream::pair().unwrap();
    let bytes: Vec<u8> = (0..4 << 20).map(|at| at as u8).collect();
    ring.send(near.as_fd(), bytes.clone(), 3).unwrap();
    ring.wait(1, Duration::from_millis(20)).unwrap();
    assert!(ring.next_completion().is_none(), "the peer has not read yet");
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; 4 << 20];
        far.read_exact(&mut got).unwrap();
        got
    });
    let Completion::Sent { token: 3, bytes: back, sent: Ok(count) } = next(&mut ring) else { panic!() };
    assert_eq!(count, bytes.len());
    assert_eq!(back, bytes);
    assert_eq!(reader.join().unwrap(), bytes);
}

#[test]
fn a_send_to_nobody_is_an_error() {
    let Some(mut ring) = ring(4, 16) else { return };
    let (near, far) = UnixStream::pair().unwrap();
    drop(far);
    ring.send(near.as_fd(), b"hello?".to_vec(), 3).unwrap();
    let Completion::Sent { sent: Err(error), bytes, .. } = next(&mut ring) else { panic!() };
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    assert_eq!(bytes, b"hello?");
}

#[test]
fn a_watched_descriptor_tells_each_time() {
    let Some(mut ring) = ring(4, 16) else { return };
    let (mut near, mut far) = UnixStream::pair().unwrap();
    let watch = ring.watch(far.as_fd(), POLLIN, 9).unwrap();
    for _ in 0..3 {
        near.write_all(b"x").unwrap();
        let Completion::Ready { token: 9, events, more: true } = next(&mut ring) else { panic!() };
        assert_ne!(events & POLLIN, 0);
        far.read_exact(&mut [0]).unwrap();
    }
    ring.cancel(watch).unwrap();
    let Completion::Ready { more: false, .. } = next(&mut ring) else { panic!() };
}

#[test]
fn a_wait_ends_at_its_time_limit() {
    let Some(mut ring) = ring(4, 16) else { return };
    ring.wait(1, Duration::from_millis(1)).unwrap();
    assert!(ring.next_completion().is_none());
}

/// The buffer of what a ring receives next.
fn received(ring: &mut Ring) -> Buffer {
    let (mut near, far) = UnixStream::pair().expect("a pair of sockets");
    ring.receive(far.as_fd(), 1).expect("room in the queue");
    near.write_all(b"a secret").expect("the peer is there");
    let Completion::Received { bytes: Ok(Some(buffer)), .. } = next(ring) else { panic!() };
    buffer
}

/// Whether the ring takes a buffer for its own, to read it and to have it back.
fn takes(ring: &mut Ring, buffer: Buffer) -> [bool; 2] {
    let reads = catch_unwind(AssertUnwindSafe(|| ring.bytes(&buffer).len())).is_ok();
    [reads, catch_unwind(AssertUnwindSafe(|| ring.recycle(buffer))).is_ok()]
}

#[test]
fn a_buffer_of_another_ring_is_neither_read_nor_taken_back() {
    let (Some(mut large), Some(mut small)) = (ring(64, 4096), ring(2, 8)) else { return };
    let buffer = received(&mut large);
    assert_eq!(takes(&mut small, buffer), [false, false]);
    let buffer = received(&mut large);
    assert_eq!(takes(&mut large, buffer), [true, true]);
    // Of the same size, and with the same place in its memory.
    let mut twin = ring(64, 4096).unwrap();
    let buffer = received(&mut twin);
    assert_eq!(takes(&mut large, buffer), [false, false]);
}

#[test]
fn a_buffer_that_has_outlived_its_ring_is_nobodys() {
    let Some(mut first) = ring(4, 64) else { return };
    let buffer = received(&mut first);
    drop(first);
    let mut second = ring(4, 64).unwrap();
    assert_eq!(takes(&mut second, buffer), [false, false]);
    let buffer = received(&mut second);
    assert_eq!(second.bytes(&buffer), b"a secret");
}
