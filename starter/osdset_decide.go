package starter

import (
	"cmp"
	"time"
)

// DecideOSDSet compares two snapshots of a CephOSD, and says why its rollout has to look at it, or "" when there is
// nothing that it would not see by itself. before is nil for one that was not watched until now.
func DecideOSDSet(before *OSDSetSnapshot, now OSDSetSnapshot) (reason string) {
	if now.Deleting {
		return "" // whether its pods stay is written on them already
	}
	c := &change{}
	if before == nil || before.UID != now.UID {
		c.osdSetNotWatched(now)
		return firstOf(c.reasons)
	}
	if now.Generation != before.Generation {
		c.add("the spec changed")
	}
	if now.Policies != before.Policies {
		c.add("the policies of its namespace are %s now", cmp.Or(now.Policies, "none"))
	}
	c.hosts(before.Away, now.Away)
	c.losses(before.Lost, now.Lost)
	c.osdSetPods(before.Pods, now.Pods)
	return firstOf(c.reasons)
}

// osdSetNotWatched: something may have happened while nobody watched.
func (c *change) osdSetNotWatched(now OSDSetSnapshot) {
	switch {
	case !now.Looked:
		c.add("generation %d was not looked at yet", now.Generation)
	case !now.Settled:
		c.add("the watcher started, and not every OSD is up to date")
	default:
		// One look, which finds nothing as a rule, and tells what a person wrote on a pod meanwhile from what was there
		// before.
		c.add("the watcher started")
	}
}

// hosts that are back can run their OSDs again. That one went away is no news: nothing can be done for it, and what is
// at work sees it.
func (c *change) hosts(before, now map[string]Node) {
	for _, host := range sortedKeys(before) {
		was, is := before[host], now[host]
		switch {
		case was.Gone && !is.Gone:
			c.add("host %s is there", host)
		case is == (Node{}):
			c.add("host %s is in service again", host)
		}
	}
}

func (c *change) losses(before, now map[string]Loss) {
	for _, key := range sortedKeys(now) {
		if now[key].Due && !before[key].Due {
			c.add("%s has no pod", key)
		}
	}
}

// osdSetPods leaves out what lockkeeper did itself.
func (c *change) osdSetPods(before, now map[string]OSDSetPod) {
	for _, name := range sortedKeys(now) {
		was, had := before[name]
		is := now[name]
		switch {
		case (!had || is.UID != was.UID) && !is.Ours:
			c.add("pod %s appeared", name)
		case !had || is.UID != was.UID || is == was:
		case is.State.Value != was.State.Value && !is.State.byUs():
			c.add("somebody wrote the state %q on pod %s", is.State.Value, name)
		case is.Number.Value != was.Number.Value && !is.Number.byUs():
			c.add("somebody wrote the number %q on pod %s", is.Number.Value, name)
		case is.Made.Value != was.Made.Value && !is.Made.byUs():
			c.add("somebody changed what pod %s says of its template", name)
		case is.Remove != was.Remove && is.Remove != "":
			c.add("pod %s may be removed", name)
		case is.Key != was.Key:
			c.add("pod %s says that it is %s", name, is.Key)
		}
	}
}

func (n Note) byUs() bool { return n.Ours && n.Value != "" }

// lookAgain is when a loss that is not due yet will be; 0: there is none.
func (s OSDSetSnapshot) lookAgain() time.Duration {
	for _, loss := range s.Lost {
		if !loss.Due {
			return lossGrace
		}
	}
	return 0
}
