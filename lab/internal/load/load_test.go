package load

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// memory is a Store whose writes and reads can be made to go wrong.
type memory struct {
	mu      sync.Mutex
	objects map[string][]byte
	write   func(n int, store func()) error // nil: store and succeed
	read    func(data []byte) ([]byte, error)
	writes  int
}

func (m *memory) Write(object string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	store := func() { m.objects[object] = data }
	m.writes++
	if m.write != nil {
		return m.write(m.writes, store)
	}
	store()
	return nil
}

func (m *memory) Read(object string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, ok := m.objects[object]
	if !ok {
		return nil, ErrNotFound
	}
	if m.read != nil {
		return m.read(data)
	}
	return data, nil
}

// runFor runs a small, fast load on the store.
func runFor(t *testing.T, d time.Duration, m *memory) Report {
	t.Helper()
	m.objects = map[string][]byte{}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	l, err := Start(ctx, m, Options{Objects: 8, ObjectSize: 256, Workers: 4, Rate: 2000})
	if err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if err := l.Wait(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	return l.Report()
}

func TestSoundStoreHasNothingToReport(t *testing.T) {
	r := runFor(t, 100*time.Millisecond, &memory{})
	if r.Writes == 0 || r.Reads == 0 {
		t.Errorf("idle: %+v", r)
	}
	if r.FailedWrites+r.FailedReads+r.LostWrites != 0 || len(r.Errors) != 0 {
		t.Errorf("complains: %+v", r)
	}
}

func TestLostWrites(t *testing.T) {
	for name, m := range map[string]*memory{
		"acknowledged but dropped": {write: func(n int, store func()) error {
			if n%10 != 0 {
				store()
			}
			return nil
		}},
		"corrupted": {read: func(data []byte) ([]byte, error) {
			bad := append([]byte(nil), data...)
			bad[100] ^= 1
			return bad, nil
		}},
		"truncated": {read: func(data []byte) ([]byte, error) { return data[:10], nil }},
		"gone":      {read: func([]byte) ([]byte, error) { return nil, ErrNotFound }},
	} {
		if r := runFor(t, 100*time.Millisecond, m); r.LostWrites == 0 || r.FailedWrites+r.FailedReads != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestFailedWriteIsNotLost(t *testing.T) {
	fail := errors.New("no")
	for name, happens := range map[string]bool{"it happened": true, "it did not": false} {
		r := runFor(t, 100*time.Millisecond, &memory{write: func(n int, store func()) error {
			if n%10 != 0 {
				store()
				return nil
			}
			if happens {
				store()
			}
			return fail
		}})
		if r.FailedWrites == 0 || r.LostWrites != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestSlowWriteIsAStall(t *testing.T) {
	r := runFor(t, 200*time.Millisecond, &memory{write: func(n int, store func()) error {
		if n == 20 {
			time.Sleep(50 * time.Millisecond)
		}
		store()
		return nil
	}})
	if r.LongestStall < 50 || r.FailedWrites+r.LostWrites != 0 {
		t.Errorf("%+v", r)
	}
}

// A write that never returns must be seen while it hangs, and must not keep the load from ending.
func TestHangingWriteIsReported(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	l, err := Start(ctx, hanging{release}, Options{Objects: 1, ObjectSize: 64, Workers: 1, Rate: 1000})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(60 * time.Millisecond)
	cancel()
	if l.Wait(10*time.Millisecond) == nil {
		t.Error("ended with a write under way")
	}
	if r := l.Report(); r.LongestStall < 40 || r.LongestStallOf != "write load-00000" {
		t.Errorf("%+v", r)
	}
}

type hanging struct{ release chan struct{} }

func (h hanging) Write(string, []byte) error  { <-h.release; return nil }
func (h hanging) Read(string) ([]byte, error) { <-h.release; return nil, ErrNotFound }

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{
		{},
		{Objects: 1, ObjectSize: 64, Workers: 2, Rate: 1},
		{Objects: 1, ObjectSize: MinObjectSize - 1, Workers: 1, Rate: 1},
		{Objects: 1, ObjectSize: 64, Workers: 1, Rate: 0},
	} {
		if o.Validate() == nil {
			t.Errorf("%+v passes", o)
		}
	}
	if err := DefaultOptions().Validate(); err != nil {
		t.Error(err)
	}
}

func TestRecordSurvives(t *testing.T) {
	for _, size := range []int{MinObjectSize, MinObjectSize + 3, 16 << 10} {
		want := record{object: 7, sequence: 1 << 40}
		if got, err := decode(encode(want, size)); err != nil || got != want {
			t.Errorf("size %d: %+v, %v", size, got, err)
		}
	}
}

func TestReportFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	want := Report{Writes: 3, LostWrites: 1, Running: true}
	if err := want.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadReport(path); err != nil || got.Writes != 3 || got.LostWrites != 1 || !got.Running {
		t.Errorf("%+v, %v", got, err)
	}
}
