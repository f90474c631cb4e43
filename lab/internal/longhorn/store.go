package longhorn

import (
	"bytes"
	"fmt"
	"strings"
	"sync"

	"github.com/lockkeeper/lockkeeper/lab/internal/load"
)

// Store keeps the objects of a load in a volume, each at an offset of its own. It connects again when a connection is
// broken: a volume that was attached elsewhere has another socket, which path tells.
type Store struct {
	path func() (string, error)
	size int

	mu     sync.Mutex
	socket *Socket
}

// NewStore is a store of objects of that size.
func NewStore(path func() (string, error), size int) *Store { return &Store{path: path, size: size} }

// Write replaces an object.
func (s *Store) Write(object string, data []byte) error {
	offset, err := s.offset(object)
	if err != nil {
		return err
	}
	return s.with(func(c *Socket) error {
		_, err := c.WriteAt(data, offset)
		return err
	})
}

// Read returns an object, or load.ErrNotFound where nothing was ever written.
func (s *Store) Read(object string) ([]byte, error) {
	offset, err := s.offset(object)
	if err != nil {
		return nil, err
	}
	data := make([]byte, s.size)
	err = s.with(func(c *Socket) error {
		_, err := c.ReadAt(data, offset)
		return err
	})
	if err == nil && len(bytes.Trim(data, "\x00")) == 0 {
		return nil, load.ErrNotFound
	}
	return data, err
}

// offset is where an object is: objects are numbered at the end of their names.
func (s *Store) offset(object string) (int64, error) {
	var number int64
	_, after, _ := strings.Cut(object, "-")
	if _, err := fmt.Sscanf(after, "%d", &number); err != nil {
		return 0, fmt.Errorf("object %q has no number", object)
	}
	return number * int64(s.size), nil
}

// with lends the connection, and lets go of it when it is broken.
func (s *Store) with(use func(*Socket) error) error {
	c, err := s.connect()
	if err != nil {
		return err
	}
	if err = use(c); err != nil {
		s.mu.Lock()
		if s.socket == c {
			c.Close()
			s.socket = nil
		}
		s.mu.Unlock()
	}
	return err
}

func (s *Store) connect() (*Socket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.socket != nil {
		return s.socket, nil
	}
	path, err := s.path()
	if err != nil {
		return nil, err
	}
	s.socket, err = OpenSocket(path)
	return s.socket, err
}
