package ceph

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

// OSDCommander is a Commander that reaches OSDs, too.
type OSDCommander interface {
	// OSDCommand sends command to an OSD itself, as MonCommand does to the monitors.
	OSDCommand(ctx context.Context, osd int, command []byte) (output []byte, status string, err error)
}

// FlushOSDCaps and FlushMonCaps are what FlushPGStats takes beside the rights to read. Ceph knows no capability for
// this command alone, and refuses it to whoever may not do all with OSDs. A client that may not read the monitors' and
// OSDs' maps does not find the OSDs.
const (
	FlushOSDCaps = "allow *"
	FlushMonCaps = "allow service mon r, allow service osd r"
)

// ErrNoOSDCommands is returned for a command to an OSD on a connection that is none to OSDs.
var ErrNoOSDCommands = errors.New("this connection does not reach OSDs")

// FlushPGStats has OSDs report to the manager now instead of at the end of their period. It returns the numbers of
// those reports, by OSD; an OSD that answers lives. The user needs FlushOSDCaps and FlushMonCaps. An OSD that gives no
// answer is missing in the map. err is why, of one of them.
func (c Client) FlushPGStats(ctx context.Context, osds []int) (flushed map[int]Report, err error) {
	commander, reaches := c.Commander.(OSDCommander)
	if !reaches {
		return nil, ErrNoOSDCommands
	}
	var (
		mu sync.Mutex // guards flushed and err
		g  errgroup.Group
	)
	flushed = make(map[int]Report, len(osds))
	g.SetLimit(reportStreams)
	for _, osd := range osds {
		g.Go(func() error {
			report, failed := flush(ctx, commander, osd)
			mu.Lock()
			defer mu.Unlock()
			if failed == nil {
				flushed[osd] = report
			} else if err == nil || IsDenied(failed) {
				err = failed
			}
			return nil // one OSD that does not answer stops nobody
		})
	}
	_ = g.Wait()
	return flushed, err
}

func flush(ctx context.Context, commander OSDCommander, osd int) (Report, error) {
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	output, status, err := commander.OSDCommand(ctx, osd, []byte(`{"prefix":"flush_pg_stats"}`))
	if err != nil {
		return Report{}, newCommandError(fmt.Sprintf("tell %s flush_pg_stats", OSDName(osd)), status, err)
	}
	seq, err := strconv.ParseUint(strings.TrimSpace(string(output)), 10, 64)
	if err != nil {
		return Report{}, fmt.Errorf("ceph tell %s flush_pg_stats: the answer is no number: %w", OSDName(osd),
			errors.Unwrap(err))
	}
	return reportOf(seq), nil
}
