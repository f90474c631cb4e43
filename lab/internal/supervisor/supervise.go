package supervisor

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/runtime"
)

// Supervise is the life of a supervisor. It must be called in a process made by Launch.
func Supervise(name string, foreground bool) error {
	files := inherit()
	fail := func(err error) error {
		files.tell(message{Error: err.Error()})
		return err
	}
	if err := runtime.Isolated(); err != nil {
		return fail(err)
	}
	raiseFileLimit()
	cfg, err := instance.Load(name)
	if err != nil {
		return fail(err)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	l := &lab{Config: cfg, binary: "/proc/self/exe", stop: make(chan bool, 1)}
	if path, err := os.Executable(); err == nil {
		l.binary = path
	}
	isReady := make(chan struct{})
	go func() { // until ready, and in the foreground always, we live no longer than whoever started us
		_, _ = io.Copy(io.Discard, files.lifeline)
		select {
		case <-isReady:
			if !foreground {
				return
			}
		default:
		}
		cancel()
	}()
	progress := func(line string) {
		slog.Info(line)
		files.tell(message{Progress: line})
	}
	err = l.up(ctx, progress)
	if err != nil {
		l.down()
		if ctx.Err() != nil { // somebody changed their mind, and wants nothing to stay
			return errors.Join(ctx.Err(), os.RemoveAll(cfg.Dir))
		}
		return fail(err) // the logs stay for whoever wants to know why
	}
	close(isReady) // before we say so: whoever started us may leave as soon as it hears
	files.tell(message{Ready: true})
	keep := false
	select {
	case <-ctx.Done():
	case keep = <-l.stop:
	}
	slog.Info("stopping", "keep", keep)
	l.down()
	if keep {
		return cfg.Keep()
	}
	return os.RemoveAll(cfg.Dir)
}

// raiseFileLimit, because Ceph's daemons want more than the 1024 that is usual, and inherit ours.
func raiseFileLimit() {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil {
		limit.Cur = limit.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	}
}
