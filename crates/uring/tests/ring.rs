//! The ring on real sockets. Where the kernel does not allow io_uring there is nothing to test.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use weir_uring::{Completion, Ring};

const POLLIN: u32 = 1;

fn ring(buffers: u16, bytes: u32) -> Option<Ring> {
    match Ring::new(buffers, bytes) {
        Ok(ring) => Some(ring),
        Err(error) => {
            eprintln!("io_uring can't be had here: {error}");
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
fn what_a_peer_has_no_room_for_is_sent_when_it_reads() {
    let Some(mut ring) = ring(4, 16) else { return };
    let (near, mut far) = UnixStream::pair().unwrap();
    let bytes: Vec<u8> = (0..4 << 20).map(|at| at as u8).collect();
    ring.send(near.as_fd(), bytes.clone(), 3).unwrap();
    let Completion::Unsent { token: 3, bytes: back, sent } = next(&mut ring) else { panic!() };
    assert_eq!(back, bytes);
    assert!(sent < bytes.len());
    ring.send_rest(near.as_fd(), back, sent, 3).unwrap();
    ring.wait(1, Duration::from_millis(20)).unwrap();
    assert!(ring.next_completion().is_none(), "the peer has not read yet");
    assert_eq!(ring.rests(), 1);
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; 4 << 20];
        far.read_exact(&mut got).unwrap();
        got
    });
    let Completion::Sent { token: 3, bytes: back, sent: Ok(count) } = next(&mut ring) else { panic!() };
    assert_eq!(count, bytes.len());
    assert_eq!(back, bytes);
    assert_eq!(reader.join().unwrap(), bytes);
    assert_eq!(ring.rests(), 0);
}

#[test]
fn sends_that_go_well_end_no_wait_and_are_told_behind_it() {
    let Some(mut ring) = ring(4, 16) else { return };
    let (near, mut far) = UnixStream::pair().unwrap();
    let (gone, peer) = UnixStream::pair().unwrap();
    drop(peer);
    for (token, bytes) in [(1, "one"), (2, "two")] {
        ring.send(near.as_fd(), bytes.into(), token).unwrap();
    }
    ring.wait(1, Duration::from_millis(20)).unwrap();
    let mut got = [0; 6];
    far.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"onetwo");
    ring.send(gone.as_fd(), b"hello?".to_vec(), 3).unwrap();
    // The ones that were made before are still to be told, as well as the one that fails.
    let mut told = Vec::new();
    while told.len() < 3 {
        let Completion::Sent { token, sent, .. } = next(&mut ring) else { panic!() };
        told.push((token, sent.ok()));
    }
    told.sort_unstable();
    assert_eq!(told, [(1, Some(3)), (2, Some(3)), (3, None)]);
    assert!(ring.next_completion().is_none());
}

#[test]
fn more_sends_than_can_be_queued_at_a_time_all_arrive() {
    const SENDS: u64 = 3000;
    let Some(mut ring) = ring(4, 16) else { return };
    // The buffer of a Unix socket holds a few hundred messages, however small; TCP's has room for all of these bytes.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; 8 * SENDS as usize];
        far.read_exact(&mut got).unwrap();
        got
    });
    let mut sent = Vec::new();
    let mut waiting = 0..SENDS;
    while sent.len() < SENDS as usize {
        for number in waiting.by_ref().take(1500) {
            ring.send(near.as_fd(), number.to_be_bytes().to_vec(), number).unwrap();
        }
        ring.submit().unwrap();
        while let Some(completion) = ring.next_completion() {
            let Completion::Sent { token, bytes, sent: Ok(8) } = completion else { panic!("{completion:?}") };
            assert_eq!(bytes, token.to_be_bytes());
            sent.push(token);
        }
    }
    sent.sort_unstable();
    assert_eq!(sent, (0..SENDS).collect::<Vec<_>>());
    let expected: Vec<u8> = (0..SENDS).flat_map(u64::to_be_bytes).collect();
    assert_eq!(reader.join().unwrap(), expected);
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
