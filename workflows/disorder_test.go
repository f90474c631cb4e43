package workflows_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// disorder is what happens, and how it is put in order again.
type disorder struct {
	*scene
	managerDown, noQuorum, noWatcher, noWorker bool
	deleted, broken, unmanaged, foreign        bool
	second                                     bool // another policy of the namespace is the older one
	// outwitted: somebody took our budgets away. Drains that went on meanwhile may have stopped so much that none of them
	// may go on, and somebody has to give up.
	outwitted bool
	// took: somebody deleted an OSD's pod. On a cordoned node it has no way back, nor has an OSD whose disk is broken: if
	// they are of two failure domains, each of their nodes waits for the other. So it is where a drain evicted an OSD at
	// rest, and the disk broke a moment later.
	took     bool
	tainted  string
	hung     []string
	scaled   string          // an OSD whose Deployment wants no pod
	nobody   bool            // the policy was told that nobody may go at rest
	osdSet   string          // as in schedule
	without  map[string]bool // events that do not happen
	hammers  []hammer
	images   []string        // that were rolled out
	releases int             // how many releases newer than the first image the last one is
	skipped  map[string]bool // OSDs
	out      []string        // OSDs that a person gave up
	aborted  bool            // a rollout was
	stranger bool            // somebody else's pod with our label is there
	// excused are nodes that somebody uncordoned, or whose observing drain somebody ended, in the middle of a kubectl
	// drain: that one may then wait for a mon in vain until the node is uncordoned. undone are those whose job was told to
	// undo what it did.
	excused   sync.Map
	undone    sync.Map
	upgrading sync.Map
	fencing   bool
	// as in schedule
	byNumber, firstWaits bool
	scattered            bool     // the OSDs of a node are in several failure domains
	paused               sync.Map // nodes whose fence a person has paused
	endedFences          sync.Map // and when somebody ended it
}

func (d *disorder) play(events []event) (stuck []string) {
	d.skipped = map[string]bool{}
	d.startKeeper()
	if d.fencing {
		if d.byNumber {
			d.machines.UseBudget(d.firstWaits)
		}
		d.SetFencing(true)
		go d.watchMachines()
	}
	if !d.Await(5*time.Minute, func() bool { return len(d.Leftovers()) == 0 }) {
		return []string{fmt.Sprintf("does not come to rest at the beginning: %q", d.Leftovers())}
	}
	for i, e := range events {
		time.Sleep(e.After)
		for _, h := range d.hammers {
			if h.Event == i {
				d.Hammer(h.Lasting, h.Every)
			}
		}
		d.happen(e)
	}
	d.Tell("now let it rest")
	return d.rest()
}

// meddles are events that interfere with a drain from outside.
var meddles = map[string]bool{"uncordon": true, "done": true, "abort": true, "kill drain": true, "cancel drain": true}

// outwits are events after which nobody guards the storage for a while.
var outwits = map[string]bool{
	"tamper": true, "delete budget": true, "manage": true, "delete policy": true, "foreign": true, "second policy": true,
	"policy elsewhere": true,
}

func (d *disorder) happen(e event) {
	if d.without[e.Kind] {
		return
	}
	nodes, daemons := d.Nodes(), d.Daemons()
	node, daemon, osd := nodes[e.Which%len(nodes)], daemons[e.Which%len(daemons)], e.Which%d.OSDs()
	job := jobs.DrainNode.ID(node)
	d.outwitted = d.outwitted || outwits[e.Kind]
	d.took = d.took || e.Kind == "delete pod" || e.Kind == "scale"
	if meddles[e.Kind] && d.Draining(node) {
		d.excused.Store(node, true)
	}
	switch e.Kind {
	case "abort", "cancel drain":
		d.undone.Store(node, true)
	case "kubectl drain", "upgrade":
		// Its job takes away its own cordon, which this drain takes for given.
		if _, undone := d.undone.Load(node); undone && d.lives(node) {
			d.excused.Store(node, true)
		}
	}
	switch e.Kind {
	case "drain":
		d.drain(workflows.DrainNodeInput{Node: node, Policy: sim.Key.String(), UncordonAfterReboot: e.Which%2 == 0})
	case "kubectl drain":
		d.KubectlDrain(node)
	case "upgrade":
		d.upgrade(node)
	case "uncordon":
		d.PersonCordons(node, false)
	case "done", "abort", "pause", "resume":
		d.tellDrain(node, e.Kind)
	case "reboot":
		d.Reboot(node)
	case "kill":
		d.Kill(daemon, 2*time.Second)
	case "evict":
		d.EvictAny(daemon)
	case "noout":
		if d.Noout(node) != "lockkeeper" {
			d.PersonSetsNoout(node, d.Noout(node) == "")
		}
	case "delete node":
		if !d.deleted {
			d.deleted = true
			d.DeleteNode(node)
		}
	case "rename host":
		d.RenameHost(node)
	case "replace host":
		d.ReplaceHost(node)
	case "restore node":
		d.RestoreNode(node)
	case "break disk":
		if !d.broken {
			d.broken = true
			d.BreakDisk(osd)
		}
	case "taint":
		if d.tainted == "" {
			d.tainted = node
			d.Taint(node, "ToBeDeletedByClusterAutoscaler")
		}
	case "untaint":
		d.untaint()
	case "hang":
		d.toggleHang(nodes, e.Which)
	case "tamper":
		d.TamperWithBudget(false)
	case "delete budget":
		d.TamperWithBudget(true)
	case "policy":
		d.editPolicy(e.Which)
	case "delete policy":
		if e.Which%3 == 0 {
			d.DeletePolicy()
		} else {
			d.RestorePolicy()
		}
	case "second policy":
		d.second = !d.second
		d.AnotherPolicy(d.second)
	case "policy elsewhere":
		d.PolicyElsewhere(elsewhere[e.Which%len(elsewhere)])
	default:
		if !d.rollout(e.Kind, e.Which) && !d.fence(e.Kind, node) && !d.odd(e.Kind, e.Which) {
			d.fail(e.Kind, job)
		}
	}
}

// odd is what people do seldom, and probes that fail.
func (d *disorder) odd(kind string, which int) bool {
	switch osds := d.OSDs(); kind {
	case "flag":
		d.PersonSetsFlag(flags[which%len(flags)], which < 8)
	case "nobody at rest":
		d.nobody = true
		d.restWith("None")
	case "somebody at rest":
		d.restWith("One")
	case "copy mark":
		d.CopyMark(fmt.Sprintf("osd.%d", which%osds), fmt.Sprintf("osd.%d", (which+1)%osds))
	case "unready":
		d.Unready(fmt.Sprintf("osd.%d", which%osds), time.Duration(1+which)*time.Second)
	case "disconnect":
		d.Disconnect(fmt.Sprintf("osd.%d", which%osds))
	case "reconnect":
		d.Reconnect()
	case "scale":
		d.scale(fmt.Sprintf("osd.%d", which%osds))
	default:
		return false
	}
	return true
}

// flags are of the whole Ceph cluster.
var flags = []string{"nodown", "noup", "pause", "norecover"}

func (d *disorder) restWith(what string) {
	d.ChangePolicy("atRest: "+what, func(s *v1alpha1.CephSpec) { s.AtRest = what })
}

// scale takes an OSD's pod away for good, or brings back the one that was.
func (d *disorder) scale(osd string) {
	switch {
	case d.osdSet != "":
	case d.scaled != "":
		d.Scale(d.scaled, 1)
		d.scaled = ""
	default:
		d.scaled = osd
		d.Scale(osd, 0)
	}
}

// evenOut ends what is odd.
func (d *disorder) evenOut() {
	d.Reconnect()
	for _, f := range flags {
		d.PersonSetsFlag(f, false)
	}
	if d.scaled != "" {
		d.scale(d.scaled)
	}
	if d.nobody {
		d.restWith("One")
	}
}

// elsewhere is what a policy of another namespace may be to ours: none, the one that was first, one that means another
// Ceph cluster, a younger one that came first to its keeper, and that one when it has given way.
var elsewhere = []*sim.Elsewhere{
	nil,
	{Older: true, FSID: sim.FSID, Claimed: true},
	{Older: true, FSID: anotherFSID, Claimed: true},
	{FSID: sim.FSID, Claimed: true},
	{FSID: sim.FSID},
}

// fail is what happens to lockkeeper and to Ceph's own governors.
func (d *disorder) fail(kind, job string) {
	keeper := workflows.KeeperID(sim.Key)
	switch kind {
	case "kill drain":
		if d.runs(job) {
			d.kill(job)
		}
	case "cancel drain":
		if d.runs(job) && !d.dead(job) {
			d.cancel(job)
		}
	case "kill keeper":
		if d.runs(keeper) && !d.noWatcher { // nobody else would start another one
			d.Unguarded(2 * time.Minute)
			d.killKeeper()
			if d.fencing {
				d.machines.Forgotten()
			}
		}
	case "continue":
		d.Tell("the keeper is to continue as new")
		d.post(func() { d.suggestContinueAsNew(true) })
		d.continueJob(job)
	case "worker":
		d.noWorker = !d.noWorker
		d.crashWorker(d.noWorker)
	case "watcher":
		if d.noWatcher = !d.noWatcher; d.noWatcher && d.PolicyExists() {
			d.startKeeper()
		}
		d.blindfold(d.noWatcher)
	case "manager":
		d.managerDown = !d.managerDown
		d.StopManager(d.managerDown)
	case "quorum":
		d.noQuorum = !d.noQuorum
		d.LoseQuorum(d.noQuorum)
	case "manage":
		d.unmanaged = !d.unmanaged
		d.Manage(!d.unmanaged)
	case "foreign":
		d.foreign = !d.foreign
		d.Foreign(d.foreign)
	default:
		panic("an event of no known kind: " + kind)
	}
}

// upgrade drains, reboots and uncordons a node, as upgrade tools do. It does not wait for anything in between but the
// drain.
func (d *disorder) upgrade(node string) {
	done := d.KubectlDrain(node)
	d.upgrading.Store(node, true)
	go func() {
		defer d.upgrading.Delete(node)
		if err := <-done; err != nil {
			return
		}
		d.Reboot(node)
		time.Sleep(8 * time.Second)
		if d.Draining(node) { // somebody else's drain, in the middle of this upgrade
			d.excused.Store(node, true)
		}
		d.PersonCordons(node, false)
	}()
}

func (d *disorder) isExcused(node string) bool {
	_, is := d.excused.Load(node)
	return is
}

func (d *disorder) untaint() {
	if d.tainted != "" {
		d.Taint(d.tainted, "")
		d.tainted = ""
	}
}

// toggleHang stops all daemons on a node, or all OSDs of it and of the next two, which are in other zones; or lets them
// go on.
func (d *disorder) toggleHang(nodes []string, which int) {
	if len(d.hung) > 0 {
		d.Hang(false, d.hung...)
		d.hung = nil
		return
	}
	d.hung = []string{nodes[which%len(nodes)]}
	if which >= len(nodes) {
		d.hung = nil
		for more := range 3 {
			d.hung = append(d.hung, d.OSDsOn(nodes[(which+more)%len(nodes)])...)
		}
	}
	d.Hang(true, d.hung...)
}

func (d *disorder) editPolicy(which int) {
	edits := []struct {
		what   string
		change func(*v1alpha1.CephSpec)
	}{
		{
			"osdMaintenanceTimeout: 1m",
			func(s *v1alpha1.CephSpec) { s.OSDMaintenanceTimeout = &metav1.Duration{Duration: time.Minute} },
		},
		{"osdMaintenanceTimeout: 30m", func(s *v1alpha1.CephSpec) {
			s.OSDMaintenanceTimeout = &metav1.Duration{Duration: 30 * time.Minute}
		}},
		{"announcementTimeout: 0s", func(s *v1alpha1.CephSpec) { s.AnnouncementTimeout = &metav1.Duration{} }},
		{
			"announcementTimeout: 10s",
			func(s *v1alpha1.CephSpec) { s.AnnouncementTimeout = &metav1.Duration{Duration: 10 * time.Second} },
		},
		{"pgHealthCheckTimeout: 20s", func(s *v1alpha1.CephSpec) {
			s.PGHealthCheckTimeout = &metav1.Duration{Duration: 20 * time.Second}
		}},
		{"pgHealthCheckTimeout: 0s", func(s *v1alpha1.CephSpec) { s.PGHealthCheckTimeout = nil }},
		{"another pgHealthyRegex", func(s *v1alpha1.CephSpec) { s.PGHealthyRegex = `^active\+clean$` }},
	}
	e := edits[which%len(edits)]
	d.ChangePolicy(e.what, e.change)
}

// givesUp is after how many minutes somebody does.
const givesUp = 45

// rest ends what people began and mends what can be mended, and expects everything to come to rest by itself.
func (d *disorder) rest() (stuck []string) {
	d.crashWorker(false)
	d.blindfold(false)
	d.StopManager(false)
	d.LoseQuorum(false)
	d.Foreign(false)
	d.Manage(true)
	d.AnotherPolicy(false)
	d.PolicyElsewhere(nil)
	d.Hang(false, d.hung...)
	d.untaint()
	d.evenOut()
	d.mendRollouts()
	d.mendFences()
	for _, node := range d.Nodes() {
		if d.Noout(node) == "a person" {
			d.PersonSetsNoout(node, false)
		}
	}
	// Every kubectl drain must end by itself; who drained a node uncordons it then.
	for i := range 100 { // the last resort is the end of a noout, after half an hour, and one domain after the other
		for _, node := range d.Nodes() {
			if i == givesUp && (d.outwitted || d.broken && d.took || (d.broken || d.Slipped()) && d.NoWayBack()) {
				d.excused.Store(node, true)
			}
			d.RestoreNode(node)
			d.signal(jobs.DrainNode.ID(node), jobs.SignalResume, nil)
			if _, upgrades := d.upgrading.Load(node); !upgrades && !d.Draining(node) || d.isExcused(node) {
				d.signal(jobs.DrainNode.ID(node), jobs.SignalDone, nil)
				d.PersonCordons(node, false)
			}
		}
		d.resumeRollouts()
		d.helpFences(i)
		if d.Await(time.Minute, d.quiet) {
			return d.notWhole()
		}
	}
	for _, id := range []string{updateID, restartID} {
		if d.runs(id) && !d.broken {
			stuck = append(stuck, fmt.Sprintf("%s does not end: %+v", id, d.updateStatus(id)))
		}
	}
	for _, node := range d.Nodes() {
		if d.Draining(node) && !d.isExcused(node) {
			stuck = append(stuck, "kubectl drain "+node+" does not end")
		}
		if d.lives(node) {
			stuck = append(stuck, fmt.Sprintf("the drain of %s does not end: %+v", node, d.drainStatus(node).JobStatus))
		}
	}
	for _, w := range d.fencesUnderWay() {
		stuck = append(stuck, fmt.Sprintf("%s; keeper: %+v", w, d.Status().Fencing))
	}
	if left := d.Leftovers(); len(left) > 0 {
		stuck = append(stuck, fmt.Sprintf("left behind: %q, keeper: %+v", left, d.keeperStatus()))
	}
	return slices.Concat(stuck, d.notRolledOut(), d.notWhole())
}

// quiet: no drain runs, of ours or kubectl's, and nothing of ours is left over.
func (d *disorder) quiet() bool {
	for _, node := range d.Nodes() {
		if _, upgrades := d.upgrading.Load(node); d.lives(node) || !d.isExcused(node) && (upgrades || d.Draining(node)) {
			return false
		}
	}
	if d.osdSet != "" && !d.PolicyExists() { // it was not gone yet when somebody wanted to create it anew
		return false
	}
	// A rollout that has just been asked for has not begun yet.
	return len(d.Leftovers()) == 0 && len(d.fencesUnderWay()) == 0 &&
		(d.broken || !d.runs(updateID) && !d.runs(restartID) && len(d.notRolledOut()) == 0)
}

// lives tells whether a drain of ours runs.
func (d *disorder) lives(node string) bool {
	id := jobs.DrainNode.ID(node)
	return d.runs(id) && !d.dead(id)
}

// notWhole says what has not come back, but for a disk that broke.
func (d *disorder) notWhole() []string {
	missing := func() (out []string) {
		for _, w := range d.Whole() {
			if !d.broken || !strings.HasPrefix(w, "osd.") {
				out = append(out, w)
			}
		}
		return out
	}
	for range 12 { // a drain that had only just begun cordons its node after all others were uncordoned
		for _, node := range d.Nodes() {
			d.PersonCordons(node, false)
		}
		if d.Await(10*time.Second, func() bool { return len(missing()) == 0 }) {
			return nil
		}
	}
	return missing()
}
