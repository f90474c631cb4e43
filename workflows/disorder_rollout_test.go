package workflows_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file is what people do to OSDs as such, in a schedule.

func (d *disorder) image() string {
	if len(d.images) == 0 {
		return sim.FirstImage
	}
	return d.images[len(d.images)-1]
}

// newImage is one of a version that no OSD has had: now and then of another release, which may be one that skips too
// many. The mons get there when somebody thinks of it, and the flag that says what OSDs have.
func (d *disorder) newImage(which int) string {
	switch which % 5 {
	case 3:
		d.releases += 1 + which%3
	case 4:
		d.finishUpgrade()
	}
	d.images = append(d.images, fmt.Sprintf("ceph:%d.2.%d", sim.FirstVersion.Release+d.releases, len(d.images)+1))
	return d.image()
}

func (d *disorder) finishUpgrade() {
	d.UpgradeMons(sim.FirstVersion.Release + d.releases)
	d.RequireRelease()
}

// rolls is the rollout that there is: that of the CephOSD, or a restart of Deployments.
func (d *disorder) rolls() string {
	if d.osdSet != "" {
		return updateID
	}
	return restartID
}

// rollout is one of the events of rollouts, and tells whether it is any.
func (d *disorder) rollout(kind string, which int) bool {
	osd := fmt.Sprintf("osd.%d", which%d.OSDs())
	switch kind {
	case "rollout", "bad rollout":
		if d.osdSet == "" {
			d.restart(kind == "bad rollout", which)
			break
		}
		d.SetImage(d.drawImage(kind == "bad rollout", which))
	case "mend rollout":
		d.Crashes(d.image(), false)
		d.Withhold(d.image(), false)
	case "pause rollout":
		d.signal(d.rolls(), jobs.SignalPause, nil)
	case "resume rollout":
		d.signal(d.rolls(), jobs.SignalResume, nil)
	case "approve rollout":
		d.approve()
	case "skip osd":
		d.Tell("a person skips %s", osd)
		d.skipped[osd] = true
		d.Excuses()
		d.signal(d.rolls(), jobs.SignalSkip, osd)
	case "abort rollout":
		d.Tell("a person aborts the rollout")
		d.aborted = true
		d.Excuses()
		d.signal(d.rolls(), jobs.SignalAbort, nil)
	case "continue rollout":
		d.continueJob(updateID)
	default:
		return d.osdSet == "" && ofCephOSD[kind] || d.tamper(kind, osd, which)
	}
	return true
}

// drawImage is a new image, with which no OSD comes up if it is bad.
func (d *disorder) drawImage(bad bool, which int) string {
	image := d.newImage(which)
	if bad {
		d.Crashes(image, which%2 == 0)
		d.Withhold(image, which%2 == 1)
	}
	return image
}

// restart is a person who restarts all OSDs, or gives them another image.
func (d *disorder) restart(bad bool, which int) {
	in := workflows.RestartOSDsInput{Namespace: sim.Key.Namespace, UpdateDomain: []string{"OSD", "Host", "Zone"}[which%3]}
	if d.runs(restartID) {
		return
	}
	if bad || which%2 == 1 {
		in.Image = d.drawImage(bad, which)
	}
	d.Tell("a person restarts all OSDs by %s %s", in.UpdateDomain, in.Image)
	d.start(restartID, jobs.RestartOSDs.Type, in)
}

// ofCephOSD are the events that there are only with a CephOSD.
var ofCephOSD = setOf(cephOSDs)

func setOf(names []string) map[string]bool {
	out := map[string]bool{}
	for _, n := range names {
		out[n] = true
	}
	return out
}

func (d *disorder) approve() {
	d.Approves()
	d.signal(d.rolls(), jobs.SignalApprove, nil)
}

// tamper is what people do to the CephOSD and its pods.
func (d *disorder) tamper(kind, osd string, which int) bool {
	switch kind {
	case "delete pod":
		d.DeletePod(osd)
	case "override":
		d.Annotate(osd, podspec.StateAnnotation, []string{"", string(podspec.UpToDate)}[which%2])
	case "damage":
		d.Annotate(osd, []string{podspec.DataAnnotation, podspec.HostAnnotation, podspec.HashAnnotation}[which%3], "")
	case "duplicate":
		d.Duplicate(osd)
	case "foreign pod":
		d.stranger = !d.stranger
		d.ForeignPod(d.stranger)
	case "move db":
		if d.osdSet != "OSD" || d.OSDs() == len(d.Nodes()) { // two that swap and never stop together are refused
			d.MoveDB(osd)
		}
	case "leave":
		leaves := !slices.Contains(d.Left(), osd)
		if d.Leave(osd, leaves); leaves && which%2 == 1 {
			d.out = append(d.out, osd)
			d.MarkOut(osd, true)
		}
	case "delete CephOSD":
		if which%3 == 0 {
			d.DeleteCephOSD()
		} else {
			d.RestoreCephOSD()
		}
	default:
		edit, is := edits[kind]
		if is {
			d.edit(edit.field, edit.values[which%len(edit.values)])
		}
		return is
	}
	return true
}

// edits are what people change in a CephOSD's spec, by event.
var edits = map[string]struct {
	field  string
	values []any // nil: without
}{
	"canary":   {"canary", []any{nil, map[string]any{"soak": "1m"}, map[string]any{"soak": "30s", "approval": true}}},
	"paused":   {"paused", []any{true, nil}},
	"window":   {"windows", []any{[]any{opening("0 0 1 7 *", "1h")}, nil, []any{opening("*/10 * * * *", "3m")}}},
	"parallel": {"maxParallel", []any{int64(1), nil, int64(2)}},
	"between":  {"pauseBetween", []any{"20s", nil, "2m"}},
}

func opening(schedule, duration string) map[string]any {
	return map[string]any{"schedule": schedule, "duration": duration}
}

func (d *disorder) edit(field string, value any) {
	d.EditCephOSD(fmt.Sprintf("%s: %v", field, value), func(spec map[string]any) {
		if spec[field] = value; value == nil {
			delete(spec, field)
		}
	})
}

// mendRollouts makes every image work, so that no rollout is halted for good but by a disk, and takes back what keeps
// one from going on, and who left.
func (d *disorder) mendRollouts() {
	for _, image := range d.images {
		d.Crashes(image, false)
		d.Withhold(image, false)
	}
	d.finishUpgrade()
	if d.osdSet == "" {
		return
	}
	d.RestoreCephOSD()
	if may := d.RequiredRelease() + 2 - sim.FirstVersion.Release; d.releases > may {
		d.releases = may
		d.SetImage(d.newImage(0))
	}
	for _, edit := range edits {
		d.edit(edit.field, nil)
	}
	for _, osd := range d.Left() {
		d.Leave(osd, false)
	}
	for _, osd := range d.out {
		if !d.Dead(osd) {
			d.MarkOut(osd, false)
		}
	}
	d.ForeignPod(false)
}

// resumeRollouts ends pauses, and starts what was aborted once more. Whoever skipped an OSD whose device another one
// waits for does as the rollout says: a new template ends it.
func (d *disorder) resumeRollouts() {
	if d.runs(updateID) {
		status := d.updateStatus(updateID)
		if strings.Contains(fmt.Sprint(status.WaitsFor, status.Warned), "was skipped until the template changes") {
			d.SetImage(d.newImage(0))
		}
	}
	if d.osdSet != "" || d.runs(restartID) {
		d.RestorePolicy() // without one nothing is rolled out
	}
	d.signal(d.rolls(), jobs.SignalResume, nil)
	d.approve()
	// An OSD that is without a pod because of the abort keeps its failure domain from healing, whatever disk is broken
	// elsewhere.
	if left := slices.Concat(d.notRolledOut(), d.Strays()); d.osdSet != "" && d.aborted && len(left) > 0 {
		d.rollOut()
	}
}

// notRolledOut says which OSDs are not what the template says, but for those that wait for a broken disk, or were
// skipped; and which have no pod, or several.
func (d *disorder) notRolledOut() []string {
	if d.osdSet == "" || d.broken {
		return nil
	}
	outdated := slices.DeleteFunc(d.Outdated(), func(what string) bool {
		osd, _, _ := strings.Cut(what, ":")
		return d.skipped[osd]
	})
	return slices.Concat(outdated, d.Strays())
}
