package workflows_test

import (
	"fmt"

	"github.com/lockkeeper/lockkeeper/internal/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file is what people do to OSDs as such, in a schedule.

func (d *disorder) image() string {
	if d.images == 0 {
		return sim.FirstImage
	}
	return fmt.Sprintf("ceph:1.%d", d.images)
}

// rolls is the rollout that there is: that of the CephOSD, or a restart of Deployments.
func (d *disorder) rolls() string {
	if d.fleet != "" {
		return updateID
	}
	return restartID
}

func (d *disorder) rollout(kind string, osd int) {
	switch kind {
	case "rollout", "bad rollout":
		if d.fleet == "" {
			domain := []string{"OSD", "Host", "Zone"}[osd%3]
			d.Tell("a person restarts all OSDs by %s", domain)
			d.start(restartID, workflows.RestartOSDsType, workflows.RestartOSDsInput{Namespace: sim.Key.Namespace, UpdateDomain: domain})
			return
		}
		d.images++
		if kind == "bad rollout" {
			d.Crashes(d.image(), true)
		}
		d.SetImage(d.image())
	case "mend rollout":
		d.Crashes(d.image(), false)
	case "pause rollout":
		d.signal(d.rolls(), workflows.SignalPause, nil)
	case "resume rollout":
		d.signal(d.rolls(), workflows.SignalResume, nil)
	case "abort rollout":
		d.Tell("a person aborts the rollout")
		d.signal(d.rolls(), workflows.SignalAbort, nil)
	case "continue rollout":
		d.continueRollout()
	case "delete pod":
		if d.fleet != "" { // a Deployment has the next one at once
			d.DeletePod(fmt.Sprintf("osd.%d", osd))
		}
	}
}

// mendRollouts makes every image work, so that no rollout is halted for good but by a disk.
func (d *disorder) mendRollouts() {
	for n := range d.images {
		d.Crashes(fmt.Sprintf("ceph:1.%d", n+1), false)
	}
}

// resumeRollouts ends pauses, and starts what was aborted once more.
func (d *disorder) resumeRollouts() {
	if d.fleet != "" || d.runs(restartID) {
		d.RestorePolicy() // without one nothing is rolled out
	}
	d.signal(d.rolls(), workflows.SignalResume, nil)
	if d.fleet != "" && len(d.notRolledOut()) > 0 {
		d.rollOut()
	}
}

// notRolledOut says which OSDs are not what the template says, but for those that wait for a broken disk.
func (d *disorder) notRolledOut() []string {
	if d.fleet == "" || d.broken {
		return nil
	}
	if n := d.Images()[d.image()]; n != d.OSDs() {
		return []string{fmt.Sprintf("%d of %d OSDs run %s: %v", n, d.OSDs(), d.image(), d.Images())}
	}
	return nil
}
