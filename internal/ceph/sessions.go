package ceph

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

// This file asks which OSDs the monitors have a session with. One without may be up, serve, and report to the manager
// all the same. But after any other OSD of its placement groups has gone it cannot tell the monitors that it leads them
// now, and they stand still until it is restarted.

// MonitorCommander is a Commander that reaches each monitor by its name, too.
type MonitorCommander interface {
	// MonitorCommand sends command to a monitor itself, as MonCommand does to any of them.
	MonitorCommand(ctx context.Context, monitor string, command []byte) (output []byte, status string, err error)
}

// ErrNoMonitorCommands is returned for a command to a certain monitor on a connection that reaches any of them only.
var ErrNoMonitorCommands = errors.New("this connection does not reach each monitor")

func featuresCommand() plainCommand { return plainCommand{Prefix: "features", Format: "json"} }
func sessionsCommand() plainCommand { return plainCommand{Prefix: "sessions", Format: "json"} }

// OSDSessions is how many sessions with OSDs the monitors of the quorum have. The leader counts those of the others as
// of the last lease that it renewed, some seconds ago.
func (c Client) OSDSessions(ctx context.Context) (int, error) {
	var answer struct {
		OSD []struct {
			Num int `json:"num"`
		} `json:"osd"`
	}
	if err := c.run(ctx, featuresCommand(), &answer); err != nil {
		return 0, err
	}
	sessions := 0
	for _, alike := range answer.OSD {
		sessions += alike.Num
	}
	return sessions, nil
}

// Session is one that a monitor has with an OSD.
type Session struct {
	OSD   int
	Addrs Addrs // of the OSD's process
}

// SessionsOf lists the sessions with OSDs that these monitors have, in order of the OSDs. It is an answer only if each
// of them gave one.
func (c Client) SessionsOf(ctx context.Context, monitors []string) ([]Session, error) {
	commander, reaches := c.Commander.(MonitorCommander)
	if !reaches {
		return nil, ErrNoMonitorCommands
	}
	var (
		mu  sync.Mutex // guards all
		all []Session
	)
	g, gctx := errgroup.WithContext(ctx)
	for _, monitor := range monitors {
		g.Go(func() error {
			of, err := Client{Commander: one{commander, monitor}}.sessions(gctx)
			if err != nil {
				return fmt.Errorf("mon.%s: %w", monitor, err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, of...)
			return nil
		})
	}
	err := g.Wait()
	slices.SortFunc(all, func(a, b Session) int { return a.OSD - b.OSD })
	return all, err
}

func (c Client) sessions(ctx context.Context) (of []Session, err error) {
	var answer []struct {
		EntityName    string `json:"entity_name"` // "osd.3"; empty as long as it has not proved who it is
		Authenticated bool   `json:"authenticated"`
		Open          bool   `json:"open"`
		Addrs         Addrs  `json:"addrs"`
	}
	if err := c.run(ctx, sessionsCommand(), &answer); err != nil {
		return nil, err
	}
	for _, s := range answer {
		if number, is := strings.CutPrefix(s.EntityName, "osd."); is && s.Authenticated && s.Open {
			if id, err := strconv.Atoi(number); err == nil {
				of = append(of, Session{id, s.Addrs})
			}
		}
	}
	return of, nil
}

// one carries commands to one monitor.
type one struct {
	commander MonitorCommander
	monitor   string
}

func (o one) MonCommand(ctx context.Context, command []byte) ([]byte, string, error) {
	return o.commander.MonitorCommand(ctx, o.monitor, command)
}
