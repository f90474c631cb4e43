package cephosd

import (
	"fmt"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/quorum"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file decides which of the pods that somebody wants gone must stay whatever is open.

// staying is what that depends on.
type staying struct {
	namespace string
	away      map[string]string      // why nodes are not in service, by name
	homeless  map[string]string      // why no node would take what comes in its place, by the name of the daemon
	mons      quorum.Map             // read only where a mon waits
	destroy   map[int]storage.Answer // whether OSDs hold no data that is needed
	twins     map[string]string      // another pod of the same daemon that is ready as well, by the name of the daemon
}

// why says why a pod must not go even when it is its turn; "": it may. domain is the failure domain that has to open
// for it. A mon that is to be restarted may be in none: it goes under a claim of its own.
func (s staying) why(x kube.StorageWish, domain string) string {
	isMon := rollout.IsMon(x.Daemon)
	switch away := s.away[x.Node]; {
	case away != "" && x.Newer:
		return away + ": what takes its place would find no home, and a drain takes it along"
	case away != "":
		return away + ": a drain takes it along"
	case s.homeless[x.Daemon] != "":
		return s.homeless[x.Daemon] + ": what takes its place would find no home"
	case isMon && x.Newer:
		return s.monStays()
	case isMon:
		return s.monLeaves(strings.TrimPrefix(x.Daemon, "mon."))
	}
	return s.osd(x, domain)
}

// monStays: of one or two mons none may ever stop.
func (s staying) monStays() string {
	if all := len(s.mons); !quorum.Has(all, all-1) {
		return fmt.Sprintf("of %d in the monmap a majority is %d, so that no mon can be spared: run at least three, or set "+
			"spec.ceph.allowMonQuorumLoss if Ceph may stop answering meanwhile", all, quorum.Majority(all))
	}
	return ""
}

func (s staying) monLeaves(mon string) string {
	if _, known := s.mons.Find(mon); known {
		return "it goes for good, and the monmap still has it: Ceph first, `ceph mon remove " + mon + "`"
	}
	return ""
}

// osd: one that is in no failure domain nothing opens for, and while it serves all is closed because of it. No eviction
// would get through, so what it waits for is said, and what helps if nobody needs it.
func (s staying) osd(x kube.StorageWish, domain string) string {
	if twin := s.twins[x.Daemon]; twin != "" {
		return fmt.Sprintf("pod %s is ready as well, and nothing opens while an OSD has two ready pods; "+
			"if the other one is to take over: `lockkeeper -n %s restart pod/%s --now --reason ...`", twin, s.namespace, x.Pod)
	}
	const nowhere = "the CRUSH map has it in no failure domain, so that nothing opens for it"
	a := s.destroy[osdID(x.Daemon)]
	if domain == "" && a.OK {
		return fmt.Sprintf("%s; Ceph calls it safe to destroy, so a person may let it go: `lockkeeper -n %s restart %s --now "+
			"--reason ...`", nowhere, s.namespace, x.Daemon)
	}
	var why []string
	if domain == "" {
		why = append(why, nowhere)
	}
	if (domain == "" || !x.Newer) && !a.OK {
		why = append(why, "Ceph does not call it safe to destroy: "+a.Reason)
	}
	if !x.Newer && len(why) > 0 {
		why = append([]string{"it goes for good"}, why...)
	}
	return strings.Join(why, ", and ")
}
