package ceph

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Reading is one look at the cluster. It counts as a whole or not at all.
type Reading struct {
	// Unavailable says why the reading does not count; then nothing else is set.
	Unavailable string
	// Cause is what a person can mend about that, if it is known.
	Cause storage.Cause
	// Silent is when the monitors last left a question without an answer for so long that their map may lag behind; zero:
	// never. It is set in every reading.
	Silent time.Time
	Status Status
	Quorum QuorumStatus
	// Map and Crush belong together. They are shared with later readings: look, do not touch.
	Map   *OSDMap
	Crush *CrushMap
	// Disconnected are the OSDs that are up and have had no session with a monitor for longer than it takes to turn to
	// another one.
	Disconnected Disconnected
}

// Reader takes readings. It keeps the last OSD map and CRUSH map, which are megabytes in a big cluster, and fetches
// them again only after their epochs moved on. It is safe for concurrent use.
type Reader struct {
	client Client
	heard  hearing

	mu   sync.Mutex // guards last, and is not held while Ceph is asked: who waits for it would wait for another's timeout
	last maps

	connections connections
}

// maps are an OSD map and the CRUSH map of its CrushVersion.
type maps struct {
	osd   *OSDMap
	crush *CrushMap
}

// NewReader makes a Reader that has not read anything.
func NewReader(client Client) *Reader { return &Reader{client: client} }

// Known is the OSD map of the last reading; nil before the first. Look, do not touch.
func (r *Reader) Known() *OSDMap {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last.osd
}

// Read takes a reading. An unavailable cluster (no quorum, no answer in time) is a reading with a reason; an error is
// an answer that makes no sense, a right that the user lacks, or a context that ended.
//
// A monitor that lost its quorum answers "status" from memory for as long as it lives. So what it says counts only when
// (a) the OSD map answered, which takes a valid lease from the quorum, after the status was read, (b) the quorum is a
// majority of the monmap, and (c) status was given in that same quorum, with no election in between.
func (r *Reader) Read(ctx context.Context) (Reading, error) {
	reading, err := r.read(ctx)
	if err != nil && ctx.Err() == nil && IsTimeout(err) {
		reading, err = Reading{Unavailable: fmt.Sprintf("no quorum answers: %v", err)}, nil
	}
	if errors.Is(err, errChanging) {
		reading, err = Reading{Unavailable: err.Error()}, nil
	}
	reading.Silent = r.heard.since()
	return reading, err
}

// Commit has the monitors commit something, so that the next reading names only monitors in quorum that live. Who does
// not commit in time is silent: nothing that happened meanwhile is in the maps.
func (r *Reader) Commit(ctx context.Context) error {
	type nothing struct{}
	_, err := asking(ctx, &r.heard, func(ctx context.Context) (nothing, error) { return nothing{}, r.client.Commit(ctx) })
	return err
}

func (r *Reader) read(ctx context.Context) (Reading, error) {
	status, err := asking(ctx, &r.heard, r.client.Status)
	if err != nil {
		return Reading{}, err
	}
	// Not worth asking on: the commands that need a quorum would only time out.
	if len(status.QuorumNames) == 0 {
		return Reading{Unavailable: "no quorum: the monitor that answers is in none"}, nil
	}
	now, err := r.maps(ctx, status.OSDMap.Epoch)
	if err != nil {
		return Reading{}, err
	}
	disconnected, err := r.disconnected(ctx, now.osd, status.QuorumNames)
	if err != nil {
		return Reading{}, err
	}
	quorum, err := asking(ctx, &r.heard, r.client.QuorumStatus)
	if err != nil {
		return Reading{}, err
	}
	if reason := contradiction(status, quorum, now.osd); reason != "" {
		return Reading{Unavailable: reason}, nil
	}
	return Reading{
		Status: status, Quorum: quorum, Map: now.osd, Crush: now.crush, Disconnected: disconnected,
	}, nil
}

// contradiction says why the parts of a reading do not make a whole, or "" if they do.
func contradiction(status Status, quorum QuorumStatus, osdMap *OSDMap) string {
	switch {
	case !quorum.Majority():
		return fmt.Sprintf("no quorum: only [%s] of %d monitors", strings.Join(quorum.QuorumNames, " "),
			len(quorum.MonMap.Mons))
	case status.ElectionEpoch != quorum.ElectionEpoch:
		return fmt.Sprintf("the quorum changed while it was read (election %d, then %d)", status.ElectionEpoch,
			quorum.ElectionEpoch)
	case osdMap.Epoch < status.OSDMap.Epoch:
		return fmt.Sprintf("monitors disagree: OSD map epoch %d, then %d", status.OSDMap.Epoch, osdMap.Epoch)
	default:
		return ""
	}
}

// maps returns the OSD map of at least the given epoch and the CRUSH map that it goes with. Either way it asks
// something that only a quorum answers.
func (r *Reader) maps(ctx context.Context, epoch int64) (maps, error) {
	r.mu.Lock()
	last := r.last
	r.mu.Unlock()
	// In any case: whether there is a quorum shows sooner here than by a dump, which may take long for better reasons.
	current, err := asking(ctx, &r.heard, r.client.OSDEpoch)
	if err != nil {
		return maps{}, err
	}
	if last.osd != nil && last.osd.Epoch >= epoch && current == last.osd.Epoch {
		return last, nil
	}
	now, err := r.fetch(ctx, last)
	if err != nil {
		return maps{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// Of two that read at the same time, the one with the newer map may have been first.
	if r.last.osd == nil || r.last.osd.Epoch < now.osd.Epoch {
		r.last = now
	}
	return now, nil
}

// mostFetches is how often the maps are read until they belong together.
const mostFetches = 4

// errChanging: somebody changes the CRUSH map all the time.
var errChanging = errors.New("the CRUSH map changes faster than it can be read")

// fetch reads the OSD map, and the CRUSH map if last has another one. Ceph gives them one after the other, and
// somebody may rename or move a bucket in between: then the flags are of one moment, and the names of another. So the
// CRUSH map counts only if it is the same before and after it was read.
func (r *Reader) fetch(ctx context.Context, last maps) (now maps, err error) {
	if now.osd, err = r.client.OSDDump(ctx); err != nil {
		return maps{}, err
	}
	for range mostFetches {
		if last.crush != nil && last.osd.CrushVersion == now.osd.CrushVersion {
			return now.with(last.crush), nil
		}
		crush, err := r.client.CrushDump(ctx)
		if err != nil {
			return maps{}, err
		}
		epoch, err := asking(ctx, &r.heard, r.client.OSDEpoch)
		if err != nil {
			return maps{}, err
		}
		before := now.osd
		if epoch == before.Epoch {
			return now.with(crush), nil
		}
		if now.osd, err = r.client.OSDDump(ctx); err != nil {
			return maps{}, err
		}
		if now.osd.CrushVersion == before.CrushVersion {
			return now.with(crush), nil
		}
	}
	return maps{}, errChanging
}

func (m maps) with(crush *CrushMap) maps {
	m.crush, m.osd.CrushDigest = crush, crush.Digest
	return m
}
