package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/quorum"
)

// This file looks for what is wrong with the storage.

func lookNotInCharge(f Facts) []Obstacle {
	if f.Now == nil || f.Now.View.NotInCharge == "" {
		return nil
	}
	return []Obstacle{{
		Name: budget.ReasonNotInCharge, Since: f.since(budget.ReasonNotInCharge), What: f.Now.View.NotInCharge,
		Change: "it ends by itself within seconds; if it does not, see docs/runbooks/why-is-it-closed.md",
	}}
}

func lookStorage(f Facts) []Obstacle {
	if f.Now == nil || f.Now.View.Unavailable == "" || f.Now.Decision.Reason == budget.ReasonSecondPolicy {
		return nil
	}
	return []Obstacle{{
		Name: budget.ReasonStorageUnavailable, Since: f.Now.Since,
		What: "the storage cluster does not answer: " + f.Now.View.Unavailable,
		Change: "a majority of the mons has to answer: `kubectl -n " + namespaceOf(f.Policy) +
			" get pods -l app=rook-ceph-mon -o wide`; if it says access denied or forbidden, mend the credentials",
	}}
}

func lookProblems(f Facts) []Obstacle {
	if f.Now == nil {
		return nil
	}
	var out []Obstacle
	for _, p := range f.Now.View.Problems {
		out = append(out, Obstacle{
			Name: budget.ReasonProblem, Since: f.since(budget.ReasonProblem), What: p,
			Change: "mend what it names: a label, spec.ceph.osds, a stray Deployment of a purged OSD",
		})
	}
	return out
}

func lookIntolerant(f Facts) []Obstacle {
	if f.Now == nil {
		return nil
	}
	var out []Obstacle
	for _, p := range f.Now.View.Intolerant {
		out = append(out, Obstacle{
			Name: budget.ReasonIntolerant, Since: f.since(budget.ReasonIntolerant),
			What:   p + ": without one failure domain its data would be unavailable",
			Change: "raise its size, or add it to spec.ceph.toleratedPools if that is all right",
		})
	}
	return out
}

// lookMons: a node whose mon is needed for a majority can begin nothing that it could end.
func lookMons(f Facts) []Obstacle {
	if f.Now == nil || f.AllowMonQuorumLoss && len(f.Now.View.Mons) <= 2 {
		return nil
	}
	var standing, out []string
	mine := ""
	for _, m := range f.Now.View.Mons {
		switch {
		case !m.Standing():
			out = append(out, m.String())
		case m.Node != f.Input.Node && f.Now.Known != nil && slices.Contains(f.Now.Known.Released, m.Node):
			out = append(out, budget.MayBeFenced(m))
		case m.Node == f.Input.Node:
			mine = m.Name
			fallthrough
		default:
			standing = append(standing, m.Name)
		}
	}
	all := len(f.Now.View.Mons)
	if mine == "" || quorum.Has(all, len(standing)-1) {
		return nil
	}
	o := Obstacle{
		Name: budget.ReasonMonQuorum,
		What: fmt.Sprintf("mon.%s on %s is needed: without it only %d of %d mons are left, and a majority is %d", mine,
			f.Input.Node, len(standing)-1, all, quorum.Majority(all)),
		Change: "run at least three mons, or set spec.ceph.allowMonQuorumLoss if Ceph may stop answering meanwhile",
	}
	if len(out) > 0 {
		o.What += "; " + strings.Join(out, ", ")
		o.Change = "bring that mon back into quorum first"
	}
	return []Obstacle{o}
}

// lookDownElsewhere names OSDs that are down in other failure domains and that the data misses, or may miss.
func lookDownElsewhere(f Facts) []Obstacle {
	if f.Now == nil || f.Now.Clean {
		return nil // the data is whole without them
	}
	var out []Obstacle
	for _, d := range f.Now.View.Domains {
		down := d.Down()
		if len(down) == 0 || d.Name == f.Domain.Name || f.heldDomain(d.Name) {
			continue
		}
		var names []string
		for _, x := range down {
			names = append(names, x.String())
		}
		out = append(out, Obstacle{
			Name: budget.ReasonDownElsewhere, Since: f.since(budget.ReasonDownElsewhere, budget.ReasonDisrupted),
			What:   fmt.Sprintf("in %s %s %s", f.Domain.Type, d.Name, some(names, 3)),
			Change: "bring them back, or let Ceph make the data whole without them: then they no longer count",
		})
	}
	return out
}

// lookClean: the data is not whole, or nobody can tell.
func lookClean(f Facts) []Obstacle {
	if f.Now == nil || f.Now.View.Unavailable != "" || f.Now.Clean || f.holds() {
		return nil
	}
	h := f.Now.Health
	if f.Now.View.Disconnected != nil && h.Fresh && h.PGsClean == h.PGs {
		return nil // waiting for the data would be of no use: all that is missing was told already
	}
	o := Obstacle{
		Name: budget.ReasonNotProvenClean, Since: f.since(budget.ReasonNotProvenClean),
		Change: "wait until Ceph has made the data whole: `ceph -s`; it opens by itself within a second",
	}
	switch {
	case h.NoManager:
		o.Name, o.What, o.Change = obstacleNoManager, h.Reason,
			"a mgr has to run: `ceph mgr stat`, `kubectl -n "+namespaceOf(f.Policy)+" get pods -l app=rook-ceph-mgr`. If one "+
				"runs, and Ceph does not name it within a minute, it has lost the mons: delete its pod"
	case !h.Fresh:
		o.What = "whether the data is whole is not known: " + orDash(h.Reason)
		o.Change = "wait: after an OSD came or went it takes up to three report periods to know, some 15 s. An OSD that " +
			"never reports hangs: restart it"
	case len(h.Unexplained) > 0:
		o.What, o.Change = fmt.Sprintf("%d of %d PGs are not clean: %s", h.PGs-h.PGsClean, h.PGs,
			strings.Join(h.Unexplained, ", ")), "that is Ceph's own matter: `ceph health detail`"
	default:
		o.What = fmt.Sprintf("%d of %d PGs are not clean", h.PGs-h.PGsClean, h.PGs)
		if h.Reason != "" {
			o.What = h.Reason
		}
	}
	return []Obstacle{o}
}

// lookDisconnected names OSDs that have lost the monitors.
func lookDisconnected(f Facts) []Obstacle {
	if f.Now == nil || f.Now.View.Disconnected.Within(f.Domain) {
		return nil
	}
	d := f.Now.View.Disconnected
	o := Obstacle{
		Name: budget.ReasonDisconnected, Since: f.since(budget.ReasonDisconnected), What: budget.WhoIsDisconnected(d),
		Change: "restart them, one after the other, with the keys that Ceph has for them now (`ceph auth get osd.N`); of those " +
			"in one failure domain a drain or `lockkeeper restart-osds` may do it",
	}
	switch d.Certain() {
	case 1:
		o.Change = "restart it, with the key that Ceph has for it now (`ceph auth get osd.N`); a drain of its failure domain or " +
			"`lockkeeper restart-osds` may do it"
	case 0:
		o.Change = "wait some seconds: they may only be turning to another monitor"
	}
	return []Obstacle{o}
}

func lookSilent(f Facts) []Obstacle {
	if f.Now == nil || f.Now.Known == nil || f.Now.Known.Life.String() == "" {
		return nil
	}
	return []Obstacle{{
		Name: budget.ReasonNoSignOfLife, Since: f.since(budget.ReasonNoSignOfLife), What: f.Now.Known.Life.String(),
		Change: "look at its process and its disk, and restart it; it opens by itself once it reports, or once Ceph calls " +
			"it down",
	}}
}

func namespaceOf(policy string) string {
	ns, _, _ := strings.Cut(policy, "/")
	return ns
}
