package budget

import (
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is about claims of jobs that move mons. Mons and storage daemons have one lock (ADR 7), so a job that takes
// a living mon away holds the lease, in a form of its own: nothing opens for it, and no other mon may go. A drain that
// has begun could lose its mon in between, and the quorum with it; so such a claim is granted only when all is quiet.

// monGate answers whether a claim of a mon may hold the lease now.
func monGate(in Input, c lease.Claim) storage.Answer {
	var out []string
	for _, m := range in.View.Mons {
		if !in.standing(m) && m.Name != c.Domain.Name {
			out = append(out, describeMon(m))
		}
	}
	switch {
	case len(in.View.Mons) == 0:
		return storage.Answer{Reason: "the mons are not known"}
	case len(out) > 0:
		return storage.Answer{Reason: strings.Join(out, ", ") + ": all other mons have to be in quorum"}
	case !Clean(in) && !timedOut(in):
		return storage.Answer{
			Reason: notClean(in), Mendable: in.View.Disconnected != nil || len(Affected(in)) > 0,
		}
	}
	return storage.Answer{OK: true}
}

// monHealed answers whether the mon of a claim has left the monmap, or is in quorum.
func monHealed(in Input, c lease.Claim) storage.Answer {
	for _, m := range in.View.Mons {
		if m.Name == c.Domain.Name && !m.Standing() {
			return storage.Answer{Reason: m.String()}
		}
	}
	return storage.Answer{OK: true}
}

// monsOfClaim are the mons that may go while a claim of a mon holds the lease: that one alone, if the rest is a
// majority.
func monsOfClaim(in Input, name string) (out []storage.Mon) {
	for _, m := range in.View.Mons {
		switch {
		case m.Name != name:
		case !m.Standing():
			out = append(out, m)
		case spare(in) > 0:
			out = append(out, proved(in, []storage.Mon{m})...)
		}
	}
	return out
}
