//! Provides buffers that the kernel picks from when bytes arrive (`IORING_REGISTER_PBUF_RING`, io_uring_register(2)):
//! idle sockets need none.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;

/// The only group of buffers.
pub(crate) const GROUP: u16 = 0;
/// The kernel wants the ring of entries at the start of a page.
const PAGE_BYTES: usize = 4096;

/// Received bytes in the ring's memory; see [`crate::Ring::bytes`] and [`crate::Ring::recycle`]. One that is dropped is
/// lost to the ring, no more. One that outlives its ring is of no use: no other ring takes it.
#[derive(Debug)]
pub struct Buffer {
    index: u16,
    length: u32,
    /// The number of the ring in whose memory it is: what is checked of index and length holds there only.
    ring: u64,
}

/// The buffers and the ring of entries by which the kernel is given them.
pub(crate) struct Buffers {
    /// No other ring of this process has it or has had it.
    ring: u64,
    entries: NonNull<BufRingEntry>,
    entries_layout: Layout,
    memory: NonNull<u8>,
    memory_layout: Layout,
    buffer_bytes: u32,
    mask: u16,
    tail: u16,
}

impl Buffers {
    /// Makes `count` buffers and gives them to the kernel.
    pub(crate) fn register(submitter: &Submitter<'_>, count: u16, buffer_bytes: u32) -> io::Result<Self> {
        let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidInput, text.to_owned());
        if !count.is_power_of_two() || buffer_bytes == 0 {
            return Err(invalid("a ring has a power of two of buffers, none of them empty"));
        }
        let of = |bytes: usize| {
            Layout::from_size_align(bytes, PAGE_BYTES).map_err(|_| invalid("too much memory for buffers"))
        };
        let entries_layout = of(usize::from(count) * size_of::<BufRingEntry>())?;
        let memory_layout = of(usize::from(count) * buffer_bytes as usize)?;
        let entries = allocate(entries_layout).cast::<BufRingEntry>();
        let memory = allocate(memory_layout);
        static RINGS: AtomicU64 = AtomicU64::new(0);
        let ring = RINGS.fetch_add(1, Ordering::Relaxed);
        let mask = count - 1;
        let mut buffers =
            Self { ring, entries, entries_layout, memory, memory_layout, buffer_bytes, mask, tail: 0 };
        // SAFETY: the entries are page-aligned, zeroed memory for exactly `count` of them, and stay until the ring is
        // gone (`leak` keeps them beyond that, `drop` frees them only if this registration failed).
        let registered =
            unsafe { submitter.register_buf_ring_with_flags(entries.as_ptr() as u64, count, GROUP, 0) };
        if let Err(error) = registered {
            buffers.free();
            return Err(error);
        }
        for index in 0..count {
            buffers.recycle(Buffer { index, length: 0, ring });
        }
        Ok(buffers)
    }

    /// What a completed receive stands for; `None` for the end of the stream.
    pub(crate) fn received(&mut self, index: Option<u16>, result: i32) -> io::Result<Option<Buffer>> {
        let length = u32::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))?;
        let buffer = match index {
            Some(index) if index <= self.mask && length <= self.buffer_bytes => {
                Buffer { index, length, ring: self.ring }
            }
            _ => return Ok(None),
        };
        if length == 0 {
            self.recycle(buffer);
            return Ok(None);
        }
        Ok(Some(buffer))
    }

    pub(crate) fn bytes(&mut self, buffer: &Buffer) -> &mut [u8] {
        let start = self.start(buffer);
        // SAFETY: index and length were checked against this memory when the handle was made (`received`; `start`: it
        // was made here). The kernel does not write to it before it is recycled, which takes the handle; there is one
        // handle for each buffer and `&mut self` keeps two slices from being there at a time.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr().add(start), buffer.length as usize) }
    }

    /// Where a buffer begins in the memory.
    ///
    /// # Panics
    /// With a buffer of another ring, which may be larger, or have the same buffer in use.
    fn start(&self, buffer: &Buffer) -> usize {
        assert_eq!(buffer.ring, self.ring, "a buffer of another ring");
        usize::from(buffer.index) * self.buffer_bytes as usize
    }

    pub(crate) fn recycle(&mut self, buffer: Buffer) {
        let slot = usize::from(self.tail & self.mask);
        let start = self.start(&buffer);
        // SAFETY: the slot is below the number of entries and the start below the size of the memory: the index was
        // checked when the handle was made, for this memory (`start`). The kernel reads an entry only after the tail has passed it, which the store below makes visible (release).
        unsafe {
            let entry = &mut *self.entries.as_ptr().add(slot);
            entry.set_addr(self.memory.as_ptr().add(start) as u64);
            entry.set_len(self.buffer_bytes);
            entry.set_bid(buffer.index);
            self.tail = self.tail.wrapping_add(1);
            let tail = BufRingEntry::tail(self.entries.as_ptr()).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }

    /// Leaves the memory to a kernel that may still be at work on it: a ring ends with its thread, and mostly with
    /// the process.
    pub(crate) fn leak(&mut self) {
        self.memory = NonNull::dangling();
        self.entries = NonNull::dangling();
    }

    fn free(&mut self) {
        // SAFETY: both were allocated with these layouts, and the kernel does not know of them.
        unsafe {
            dealloc(self.entries.as_ptr().cast(), self.entries_layout);
            dealloc(self.memory.as_ptr(), self.memory_layout);
        }
        self.leak();
    }
}

/// Zeroed memory.
fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: the layout's size is not zero: there is at least one buffer of at least one byte.
    NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}
