package workflows_test

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// fence is what happens to nodes, their Machines and their fences. It tells whether the event is of that kind.
func (d *disorder) fence(kind, node string) bool {
	id := jobs.FenceNode.ID(node)
	switch kind {
	case "lose power":
		d.machines.LosePower(node)
	case "power returns":
		d.machines.PowerReturns(node)
	case "cut off":
		d.machines.CutOff(node)
	case "network returns":
		d.machines.NetworkReturns(node)
	case "delete Machine":
		d.machines.Delete(node)
	case "take hold":
		d.machines.TakeHold(node)
	case "release fence":
		d.Tell("a person releases the Machine of %s", node)
		d.machines.ReleasedByHand(node)
		d.signal(id, workflows.SignalFenceRelease, workflows.FenceRelease{By: "ann", Reason: "I know better"})
	case "abort fence":
		d.Tell("a person aborts the fence of %s", node)
		d.endedFences.Store(node, time.Now())
		d.signal(id, jobs.SignalAbort, nil)
	case "pause fence":
		d.Tell("a person pauses the fence of %s", node)
		d.paused.Store(node, true)
		d.signal(id, jobs.SignalPause, nil)
	case "resume fence":
		d.paused.Delete(node)
		d.signal(id, jobs.SignalResume, nil)
	case "kill fence":
		if d.runs(id) && !d.dead(id) {
			d.endedFences.Store(node, time.Now())
			d.kill(id)
			d.cancel(id) // or what waits in it goes on until it does something, and no other one begins
		}
	case "continue fence":
		d.continueJob(id)
	case "delete number":
		d.machines.PersonWritesBudget(nil)
	case "edit number":
		all := len(d.Nodes())
		d.machines.PersonWritesBudget(&all)
	case "no fencing":
		d.Tell("nothing is to be fenced for a while")
		d.SetFencing(false)
		time.AfterFunc(20*time.Second, func() { d.SetFencing(true) })
	default:
		return false
	}
	return true
}

// watchMachines is the watcher's lens on Machines, which tells fences what has changed, once, and starts those that do
// not run. One that was ended a person starts again after a while.
func (d *disorder) watchMachines() {
	const again = 30 * time.Second
	type news struct {
		details string
		held    bool
	}
	var before, edition string
	told := map[string]news{}
	var late sync.Map // by node: its fence had ended when it was told, and another one has to begin
	for !d.until(time.Second, func() bool { return d.over }) {
		hindered := d.hindered()
		d.paused.Range(func(any, any) bool { hindered = true; return false })
		if hindered {
			d.machines.Hindered()
		}
		if d.blindNow() {
			continue
		}
		now := d.machines.BudgetSays()
		if is := d.Edition(); is != edition {
			edition = is
			clear(told)
		}
		for _, node := range d.Nodes() {
			p, fenced := d.machines.Sight(node)
			now += fmt.Sprint(fenced, p.Machine, p.Deleting, ";")
			why, _ := p.Why()
			id, wanted := jobs.FenceNode.ID(node), fenced && why != fencing.WhyRecovered && p.Machine.UID != ""
			is := news{fmt.Sprint(why, p.Condition, p.Ready, p.Found, p.BootID, p.Machine.UID), p.Machine.Held}
			was := told[node]
			was.held = was.held && is.held
			if _, ended := late.LoadAndDelete(node); ended {
				was = news{}
			}
			ended, byHand := d.endedFences.Load(node)
			switch restart := byHand && time.Since(ended.(time.Time)) > again; {
			case d.runs(id) && is != was:
				d.signalOr(id, workflows.SignalFenceChanged, is.details, func() { late.Store(node, true) })
			case wanted && !d.runs(id) && (is != was || restart):
				d.endedFences.Delete(node)
				d.start(id, jobs.FenceNode.Type, workflows.FenceNodeInput{Node: node})
			}
			told[node] = is
		}
		if now != before {
			before = now
			d.signal(workflows.KeeperID(sim.Key), workflows.SignalStorageChanged, workflows.Hint{Reason: "Machines changed"})
		}
	}
}

// blindNow tells whether the watcher sees nothing, or reaches nobody.
func (d *disorder) blindNow() (blind bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.blind || d.away
}

// hindered tells whether lockkeeper cannot be expected to release anything now.
func (d *disorder) hindered() bool {
	keeper := workflows.KeeperID(sim.Key)
	d.mu.Lock()
	down := d.crashes%2 == 1
	d.mu.Unlock()
	return down || d.blindNow() || !d.runs(keeper) || d.dead(keeper)
}

// mendFences ends what people began.
func (d *disorder) mendFences() {
	if !d.fencing {
		return
	}
	d.SetFencing(true)
	for _, node := range d.Nodes() {
		d.fence("resume fence", node)
	}
}

// byHandAfter is after how many rounds people release Machines by hand whose daemons may not stop together: it would
// have been better to drain their nodes first.
const byHandAfter = 8

// networkAfter is after how many rounds people give nodes that are cut off their network back.
const networkAfter = 30

// helpFences: where so many nodes are lost that Ceph has no quorum nothing is released, and people give them their
// power, or their network, back. The policy names what fences them, also if it was created anew.
func (d *disorder) helpFences(round int) {
	if !d.fencing {
		return
	}
	if _, fenced := d.machines.Sight(d.Nodes()[0]); !fenced {
		d.SetFencing(true)
	}
	for _, node := range d.Nodes() {
		d.signal(jobs.FenceNode.ID(node), jobs.SignalResume, nil)
		if id := jobs.FenceNode.ID(node); round >= byHandAfter && d.runs(id) && d.refusedTogether(node) {
			d.fence("release fence", node)
		}
	}
	// One whose OSDs are in several failure domains keeps each of them closed, and people give it its network back.
	// Others are fenced one after the other; what keeps them from that is looked for with -sim.unhelped.
	if cut := d.machines.CutOffs(); len(cut) > 0 && (round > 0 && d.scattered || round >= networkAfter && !*simUnhelped) {
		d.machines.NetworkReturns(cut[0])
	}
	if without := d.machines.Without(); len(without) > 0 && round > 0 && !d.machines.Quorate() {
		for _, node := range without {
			d.machines.PowerReturns(node)
			d.machines.NetworkReturns(node)
		}
	}
}

// fencesUnderWay are fences that have not ended, and what is not held that should be.
func (d *disorder) fencesUnderWay() (out []string) {
	if !d.fencing {
		return nil
	}
	for _, node := range d.Nodes() {
		if id := jobs.FenceNode.ID(node); d.runs(id) && !d.dead(id) {
			out = append(out, fmt.Sprintf("%s does not end: %+v", id, d.fenceStatus(node)))
		}
	}
	if s := d.Status().Fencing; s != nil && len(s.Nodes) > 0 {
		out = append(out, fmt.Sprintf("the keeper has cases: %+v", s.Nodes))
	}
	return append(out, d.machines.Unrest()...)
}

func (d *disorder) refusedTogether(node string) bool {
	return slices.ContainsFunc(d.fenceStatus(node).Clusters, func(c workflows.FenceStanding) bool {
		return c.Reason == fencing.ReasonRefusedByStorage
	})
}
