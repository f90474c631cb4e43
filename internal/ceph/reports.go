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

// Report numbers the reports that an OSD sends to the manager every mgr_stats_period (5 s): the state of the placement
// groups that it leads, and itself.
type Report struct {
	// UpFrom is the OSD's UpFrom in the life in which it sent the report, 0 for one that it sent before it was up.
	UpFrom int64
	Count  uint32 // reports sent in that life, this one included
}

// reportOf takes a sequence number apart. Ceph keeps the life in its upper half, so numbers of two lives do not
// compare.
func reportOf(seq uint64) Report { return Report{UpFrom: int64(seq >> 32), Count: uint32(seq)} }

// reportStreams is how many requests LastReports has under way at a time. A monitor answers about three thousand a
// second.
const reportStreams = 16

// LastReports asks the monitors for the last report of each of these OSDs that went into the PGSummary they hold. An
// OSD that has not reported yet has the zero Report.
//
// The manager hands the monitors both in one piece, so a Status that is read afterwards includes these reports. The
// monitors answer from what a quorum agreed on: without a quorum, or with a dead manager, the numbers stand still. And
// no manager is asked, so that a dead one delays nobody.
func (c Client) LastReports(ctx context.Context, osds []int) (map[int]Report, error) {
	var (
		mu      sync.Mutex // guards reports
		reports = make(map[int]Report, len(osds))
	)
	g, ctx := errgroup.WithContext(ctx) // after one failure the rest is not worth asking for
	g.SetLimit(reportStreams)
	for _, osd := range osds {
		g.Go(func() error {
			report, err := c.lastReport(ctx, osd)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			reports[osd] = report
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return reports, nil
}

func (c Client) lastReport(ctx context.Context, osd int) (Report, error) {
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	output, err := c.send(ctx, lastStatSeqCommand{Prefix: "osd last-stat-seq", ID: osd, Format: "plain"})
	if err != nil {
		return Report{}, err
	}
	seq, err := strconv.ParseUint(strings.TrimSpace(string(output)), 10, 64)
	if err != nil {
		return Report{}, fmt.Errorf("ceph osd last-stat-seq %d: the answer is no number: %w", osd, errors.Unwrap(err))
	}
	return reportOf(seq), nil
}
