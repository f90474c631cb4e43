package longhorn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
)

// Socket is a connection to the socket at which an engine serves its volume. Requests may be under way side by side;
// each waits for its answer however long that takes.
//
// A message is a header of 26 bytes, little endian, and its data: magic (2 bytes), number of the request (4), kind (4),
// offset in the volume (8), size (4), length of the data (4).
type Socket struct {
	connection net.Conn
	sending    sync.Mutex

	mu      sync.Mutex
	next    uint32
	waiting map[uint32]chan message
	broken  error
}

const (
	headerLength = 26
	magic        = 0x1b01
)

type kind uint32

const (
	kindRead kind = iota
	kindWrite
	kindResponse
)

type message struct {
	number uint32
	kind   kind
	offset int64
	size   uint32
	data   []byte
}

// OpenSocket connects to the socket of a volume.
func OpenSocket(path string) (*Socket, error) {
	c, err := dial(path)
	if err != nil {
		return nil, err
	}
	s := &Socket{connection: c, waiting: map[uint32]chan message{}}
	go s.receive()
	return s, nil
}

// dial connects by way of the socket's folder: a path of a socket has 107 bytes at most, and a node that somebody else
// named may have a long name.
func dial(path string) (net.Conn, error) {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	return net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), filepath.Base(path)))
}

// Close fails what is under way.
func (s *Socket) Close() error { return s.connection.Close() }

// ReadAt reads from the volume.
func (s *Socket) ReadAt(b []byte, offset int64) (int, error) {
	answer, err := s.do(message{kind: kindRead, offset: offset, size: uint32(len(b))})
	if err != nil {
		return 0, fmt.Errorf("read %d bytes at %d: %w", len(b), offset, err)
	}
	n := copy(b, answer)
	if n < len(b) {
		return n, io.ErrUnexpectedEOF
	}
	return n, nil
}

// WriteAt writes to the volume, and returns when its replicas have what was written.
func (s *Socket) WriteAt(b []byte, offset int64) (int, error) {
	m := message{kind: kindWrite, offset: offset, size: uint32(len(b)), data: b}
	if _, err := s.do(m); err != nil {
		return 0, fmt.Errorf("write %d bytes at %d: %w", len(b), offset, err)
	}
	return len(b), nil
}

func (s *Socket) do(m message) ([]byte, error) {
	answer := make(chan message, 1)
	s.mu.Lock()
	if s.broken != nil {
		s.mu.Unlock()
		return nil, s.broken
	}
	s.next++
	m.number = s.next
	s.waiting[m.number] = answer
	s.mu.Unlock()
	if err := s.send(m); err != nil {
		return nil, err
	}
	got, ok := <-answer
	switch {
	case !ok:
		s.mu.Lock()
		defer s.mu.Unlock()
		return nil, s.broken
	case got.kind != kindResponse:
		return nil, fmt.Errorf("the engine says %d: %s", got.kind, got.data)
	}
	return got.data, nil
}

func (s *Socket) send(m message) error {
	b := make([]byte, headerLength, headerLength+len(m.data))
	binary.LittleEndian.PutUint16(b, magic)
	binary.LittleEndian.PutUint32(b[2:], m.number)
	binary.LittleEndian.PutUint32(b[6:], uint32(m.kind))
	binary.LittleEndian.PutUint64(b[10:], uint64(m.offset))
	binary.LittleEndian.PutUint32(b[18:], m.size)
	binary.LittleEndian.PutUint32(b[22:], uint32(len(m.data)))
	s.sending.Lock()
	defer s.sending.Unlock()
	_, err := s.connection.Write(append(b, m.data...))
	return err
}

// receive hands each answer to whoever waits for it, until the connection ends.
func (s *Socket) receive() {
	for {
		m, err := s.read()
		if err != nil {
			s.fail(err)
			return
		}
		s.mu.Lock()
		waiting := s.waiting[m.number]
		delete(s.waiting, m.number)
		s.mu.Unlock()
		if waiting != nil {
			waiting <- m
		}
	}
}

func (s *Socket) read() (message, error) {
	h := make([]byte, headerLength)
	if _, err := io.ReadFull(s.connection, h); err != nil {
		return message{}, err
	}
	if binary.LittleEndian.Uint16(h) != magic {
		return message{}, errors.New("not the protocol of Longhorn's engine")
	}
	m := message{number: binary.LittleEndian.Uint32(h[2:]), kind: kind(binary.LittleEndian.Uint32(h[6:]))}
	m.data = make([]byte, binary.LittleEndian.Uint32(h[22:]))
	_, err := io.ReadFull(s.connection, m.data)
	return m, err
}

func (s *Socket) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = fmt.Errorf("the engine's socket: %w", err)
	for number, waiting := range s.waiting {
		close(waiting)
		delete(s.waiting, number)
	}
}
