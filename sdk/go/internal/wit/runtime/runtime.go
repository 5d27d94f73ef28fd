//go:build wasip1

// Package wit_runtime is the memory between the host and Go: what the host writes for Go, and what Go holds still for the host.
package wit_runtime

import (
	"fmt"
	"runtime"
	"unsafe"
)

// Allocate makes room in Go's heap that stays where it is until the pinner lets it go. The bindings lay out there what the host reads.
func Allocate(pinner *runtime.Pinner, size, align uintptr) unsafe.Pointer {
	pointer := allocateRaw(size, align)
	pinner.Pin(pointer)
	return pointer
}

func allocateRaw(size, align uintptr) unsafe.Pointer {
	if size == 0 {
		return nil
	}
	if size%align != 0 {
		panic(fmt.Sprintf("size %v is not compatible with alignment %v", size, align))
	}
	switch align {
	case 1:
		return unsafe.Pointer(unsafe.SliceData(make([]uint8, size)))
	case 2:
		return unsafe.Pointer(unsafe.SliceData(make([]uint16, size/align)))
	case 4:
		return unsafe.Pointer(unsafe.SliceData(make([]uint32, size/align)))
	case 8:
		return unsafe.Pointer(unsafe.SliceData(make([]uint64, size/align)))
	default:
		panic(fmt.Sprintf("unsupported alignment: %v", align))
	}
}

// Unpin is called by the bindings when they have read the arguments of an export. The arguments lie outside of Go's heap, so there is
// nothing to let go.
func Unpin() {}

// The arena is where the host writes: the arguments of exports, and the results of imports. Whoever reads there copies what it needs into
// Go's heap at once, and says when it begins and ends to read. The arena is given back as a whole whenever nobody reads: after every
// import and after the arguments were copied, unless several goroutines call imports. One that waits in the middle of its copying, since
// the collector wanted its help, keeps what it reads.

const (
	page      = 64 << 10
	maxChunks = 32
)

type chunk struct {
	start, end uintptr
}

var (
	chunks     [maxChunks]chunk
	chunkCount int
	// Where the next allocation is tried: the chunk, and how much of it is used.
	current int
	used    uintptr

	// How many read in the arena. Unread arguments count as one reader.
	readers int
	// Arguments were written that nobody has copied yet.
	unread bool
	// An export is under way, so what the host writes is the result of an import.
	underWay bool

	// Set when this package is initialized, and with it the Go runtime. What was allocated before that stays for ever: it belongs to
	// the adapter between preview 1 and the component model.
	initialized bool
)

func init() {
	initialized = true
}

// BeginCall says that an export has its arguments, though they may still have to be copied.
func BeginCall() {
	underWay = true
}

// ArgumentsCopied says that nothing points to the arguments of the export any more.
func ArgumentsCopied() {
	if unread {
		unread = false
		EndReading()
	}
}

// EndCall says that an export has done what it had to do. What the host writes from now on are arguments of the next one.
func EndCall() {
	underWay = false
}

// BeginReading comes before the call of an import.
func BeginReading() {
	readers++
}

// EndReading says that nothing points to the results of the import any more.
func EndReading() {
	readers--
	if readers == 0 {
		current, used = 0, 0
	}
}

//go:linkname sbrk runtime.sbrk
func sbrk(n uintptr) unsafe.Pointer

// The host calls cabiRealloc to make room for what it writes.
//
// It must not allocate in Go's heap. An allocation there may begin or end a garbage collection, which reads the clock, which is a call
// of an import; and while the host is in here, every call of an import is a trap ("cannot leave component instance"). A small listener
// met that once in some thousand events, so no short test shows it. Memory from sbrk is outside of the heap: taking it wakes no
// collector, so the collector may run as it does in every other Go program.
//
//go:wasmexport cabi_realloc
func cabiRealloc(old unsafe.Pointer, oldSize, align, size uintptr) unsafe.Pointer {
	pointer := allocate(align, size)
	if oldSize > 0 {
		copy(unsafe.Slice((*byte)(pointer), size), unsafe.Slice((*byte)(old), oldSize))
	}
	return pointer
}

func allocate(align, size uintptr) unsafe.Pointer {
	if !initialized {
		return unsafe.Pointer(alignUp(uintptr(sbrk(size+align)), align))
	}
	if !underWay && !unread {
		unread = true
		readers++
	}
	for {
		if current == chunkCount {
			addChunk(size + align)
		}
		chunk := chunks[current]
		start := alignUp(chunk.start+used, align)
		if start <= chunk.end && size <= chunk.end-start {
			used = start + size - chunk.start
			return unsafe.Pointer(start)
		}
		current, used = current+1, 0
	}
}

// addChunk makes the arena larger by at least half, so that events which grow slowly do not leave many chunks behind that are too small
// for the next one; and by half more than is asked for, so that what comes behind a large payload has room there too.
func addChunk(least uintptr) {
	if chunkCount == maxChunks {
		panic("the host wrote more than an instance can hold")
	}
	total := uintptr(0)
	for _, chunk := range chunks[:chunkCount] {
		total += chunk.end - chunk.start
	}
	size := alignUp(max(least+least/2, total/2), page)
	start := uintptr(sbrk(size))
	if start == 0 {
		panic("out of memory for what the host writes")
	}
	chunks[chunkCount] = chunk{start, start + size}
	chunkCount++
}

func alignUp(address, align uintptr) uintptr {
	return (address + align - 1) &^ (align - 1)
}
