package cli

import (
	"context"
	"errors"
	"fmt"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
)

// reasonRefused is status.reason of a CephOSD of which nothing is touched. With any other one it is only some of it
// that makes no sense.
const reasonRefused = "Refused"

// cephOSDs looks for those whose rollout does not go on by itself.
func (d *Doctor) cephOSDs(ctx context.Context) {
	all, err := d.Installation.CephOSDs(ctx, d.Namespace)
	switch {
	case err != nil:
		d.unknown("which CephOSDs there are", err)
	case len(all) == 0:
		d.ok("there are none")
	}
	for i := range all {
		if all[i].DeletionTimestamp.IsZero() {
			d.cephOSDOf(ctx, &all[i])
		}
	}
}

func (d *Doctor) cephOSDOf(ctx context.Context, o *cephv1alpha1.CephOSD) {
	name, s := o.Namespace+"/"+o.Name, o.Status
	if s.ObservedGeneration != o.Generation {
		r, err := d.Temporal.Job(ctx, jobs.UpdateOSDs.ID(o.Namespace, o.Name))
		looked := fmt.Sprintf("nobody has looked at its generation %d, only at %d", o.Generation, s.ObservedGeneration)
		if s.ObservedGeneration == 0 {
			looked = "nobody has ever looked at it"
		}
		switch {
		case err != nil && !errors.Is(err, ErrNoJob):
			d.unknown(name+": whether its rollout runs", err)
		case err == nil && r.execution().State == Running:
			d.ok("%s: %s", name, r.Describe(d.Now()))
		default:
			d.found(FoundBroken, name+": "+looked+", and no rollout runs",
				fmt.Sprintf("the watcher should have started one. Is it older than the CustomResourceDefinition? Its log says "+
					"whether it watches CephOSDs:\n"+
					"kubectl -n %[1]s logs deployment/%[2]s; kubectl -n %[1]s rollout restart deployment %[2]s\nwithout it: "+
					"lockkeeper update-osds %[3]s", d.System, watcherAccount, name))
		}
		return
	}
	edit := fmt.Sprintf("kubectl -n %s edit cephosd %s", o.Namespace, o.Name)
	refused := ""
	if len(s.Refused) > 0 {
		refused = fmt.Sprintf("%s: %q: %s", s.Refused[0].Field, s.Refused[0].Value, s.Refused[0].Message)
	}
	switch {
	case s.Reason == reasonRefused:
		d.found(FoundBroken, name+" makes no sense, so nothing is touched: "+refused, edit)
	case s.Halted != nil:
		d.found(FoundBroken, fmt.Sprintf("%s has halted since %s: %s", name, when(s.Halted.Since.Time, d.Now()),
			s.Halted.Reason),
			"lockkeeper status "+name+" says which OSDs are not back and why, and what can be done")
	case refused != "": // a host that is no node, say
		d.found(FoundWarning, name+": what it says of some OSDs makes no sense, so these are left out: "+refused, edit)
	default:
		d.ok("%s: %s up to date; %s", name, orDash(s.Progress), join(s.Reason, s.Message))
	}
}
