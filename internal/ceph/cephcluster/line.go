package cephcluster

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

// A line on which nobody answers for redialAfter is made anew: librados, which asks the next mons every 3 s, has had
// its chance by then. Without a quorum that fails, and is tried again ever more seldom.
const (
	redialAfter  = 5 * time.Second
	redialAtMost = 30 * time.Second
	redialWithin = 10 * time.Second
)

// line is a connection that is made anew when nobody answers on it any more. librados follows the mons by itself, but
// not always: when the mon that it talks to goes at a bad moment it may be left without a session and without a search
// for another one, for ever (https://tracker.ceph.com/issues/58379; seen with 16.2.15 while mons moved).
type line struct {
	redial func(ctx context.Context) (Conn, error) // nil: it stays as it is

	mu         sync.Mutex // guards what follows
	conn       Conn
	closed     bool
	unanswered time.Time // when the first question since the last answer was put; zero: none waits in vain
	dialling   bool
	refused    bool          // somebody answers, and refuses what may have been granted since
	pause      time.Duration // between the last attempt and the next
	next       time.Time     // no attempt before
}

var (
	_ Conn                  = (*line)(nil)
	_ ceph.OSDCommander     = (*line)(nil)
	_ ceph.MonitorCommander = (*line)(nil)
)

// MonCommand implements ceph.Commander.
func (l *line) MonCommand(ctx context.Context, command []byte) ([]byte, string, error) {
	conn, asked := l.now(), time.Now()
	output, status, err := conn.MonCommand(ctx, command)
	l.heard(conn, asked, err)
	if anew := l.now(); anew != conn && !isAnswer(err) && ctx.Err() == nil {
		// It was made anew meanwhile, and every command may be repeated. What may not be done late goes Apart.
		return anew.MonCommand(ctx, command)
	}
	return output, status, err
}

// OSDCommand implements ceph.OSDCommander. What OSDs answer, or do not, says nothing of the mons.
func (l *line) OSDCommand(ctx context.Context, osd int, command []byte) ([]byte, string, error) {
	conn, reaches := l.now().(ceph.OSDCommander)
	if !reaches {
		return nil, "", ceph.ErrNoOSDCommands
	}
	return conn.OSDCommand(ctx, osd, command)
}

// MonitorCommand implements ceph.MonitorCommander. That one monitor gives no answer says nothing of the others.
func (l *line) MonitorCommand(ctx context.Context, monitor string, command []byte) ([]byte, string, error) {
	conn, reaches := l.now().(ceph.MonitorCommander)
	if !reaches {
		return nil, "", ceph.ErrNoMonitorCommands
	}
	return conn.MonitorCommand(ctx, monitor, command)
}

// Close implements Conn.
func (l *line) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.conn.Close()
}

func (l *line) now() Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn
}

// heard notes whether a question had an answer. One that is long overdue has the line made anew, aside: whoever asked
// does not wait for that.
func (l *line) heard(on Conn, asked time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if on != l.conn {
		return // that one has been given up
	}
	if isAnswer(err) {
		l.unanswered, l.pause = time.Time{}, 0
		return
	}
	if l.unanswered.IsZero() {
		l.unanswered = asked
	}
	now := time.Now()
	if l.redial == nil || l.closed || l.dialling || now.Sub(l.unanswered) < redialAfter || now.Before(l.next) {
		return
	}
	l.dialling = true
	go l.replace()
}

// renew has the line made anew, aside, though somebody answers: the rights of a connection are those of its beginning.
func (l *line) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.redial == nil || l.closed || l.dialling || time.Now().Before(l.next) {
		return
	}
	l.dialling, l.refused = true, true
	go l.replace()
}

// replace makes the line anew, unless somebody answers on the old one first, and refuses nothing.
func (l *line) replace() {
	ctx, done := context.WithTimeout(context.Background(), redialWithin)
	defer done()
	conn, err := l.redial(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	refused := l.refused
	l.dialling, l.refused = false, false
	l.pause = min(max(2*l.pause, redialAfter), redialAtMost)
	l.next = time.Now().Add(l.pause)
	switch {
	case err != nil:
	case l.closed || l.unanswered.IsZero() && !refused:
		conn.Close()
	default:
		if !refused {
			slog.Warn("connected to Ceph anew", "without an answer for", time.Since(l.unanswered).Round(time.Second))
		}
		l.conn.Close()
		l.conn, l.unanswered = conn, time.Time{}
	}
}

// isAnswer tells whether somebody answered a command: a refusal is an answer, too.
func isAnswer(err error) bool {
	var coded interface{ ErrorCode() int }
	return err == nil || errors.As(err, &coded) && coded.ErrorCode() != -int(syscall.ETIMEDOUT)
}
