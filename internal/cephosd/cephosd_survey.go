package cephosd

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/windows"
)

func (c cephOSD) survey(ctx context.Context, in activities.SurveyInput) (activities.Survey, error) {
	u, found, err := c.object(ctx)
	if err != nil || !found {
		return activities.Survey{}, err
	}
	set, err := podspec.Read(u.Object)
	if err != nil {
		return activities.Survey{}, err
	}
	out := activities.Survey{
		Found: true, Deleting: set.DeletionTimestamp != nil, Generation: set.Generation, Template: set.Hash,
		Rules: rulesOf(set), Skipped: skipped(u, set.Hash),
	}
	s, err := c.lookAtKubernetes(ctx, set, &out)
	if err != nil {
		return activities.Survey{}, err
	}
	// Whose pods are deleted together with a CephOSD must not depend on what is wrong with its spec, or on Ceph.
	out.Unnoted = len(s.disowned())
	if len(s.refused) == 0 {
		err = c.lookAtCeph(ctx, s, &out)
	}
	switch {
	case err != nil && out.Unnoted > 0 && ctx.Err() == nil:
		out.Unavailable = clip(err.Error())
	case err != nil:
		return activities.Survey{}, err
	}
	opened, wrong := set.Windows()
	if wrong == nil {
		keepTo(&out.Rules, opened)
	}
	s.tell(&out)
	if out.Refused = errorsOf(s.refused); len(out.Refused) > 0 || out.Unavailable != "" {
		return out, nil
	}
	s.decide(in, &out)
	if len(out.Refused) > 0 {
		return out, nil
	}
	asked, err := c.askedInVain(ctx, s)
	if err != nil {
		return activities.Survey{}, err
	}
	for _, p := range asked {
		out.Discard = append(out.Discard, p.Name)
	}
	if out.CanaryTrouble, err = c.troubleOf(ctx, s, in.Canary); err != nil {
		return activities.Survey{}, err
	}
	return out, c.judgeSuperfluous(ctx, s, &out)
}

// keepTo has a rollout keep to windows.
func keepTo(rules *activities.OSDSetRules, opened []windows.Window) {
	open, change := windows.Open(opened, time.Now())
	rules.Shut, rules.WindowChanges = !open, change
}

// tell says what can be said without Ceph.
func (s *state) tell(out *activities.Survey) {
	out.Warned = errorsOf(s.unknown)
	out.Counts.Invalid, out.Counts.Terminating, out.Counts.Superfluous = len(s.Invalid), len(s.Terminating),
		len(s.Superfluous)
	for i := range s.Foreign[:min(len(s.Foreign), mostForeign)] {
		out.Foreign = append(out.Foreign, clip(s.Foreign[i].LeftAlone()))
	}
}

// decide says what is next.
func (s *state) decide(in activities.SurveyInput, out *activities.Survey) {
	decision := rollout.Input{
		OSDs: s.osds(), DomainType: s.ceph.DomainType, MaxParallel: int(s.Spec.MaxParallel), Skip: in.Skip,
		Canary: s.Spec.Canary != nil && in.CanaryOf != s.Hash,
	}
	out.Counts.Counts, out.Counted = rollout.Count(decision), true
	p := s.plan(decision)
	if out.Refused = errorsOf(p.refused); len(out.Refused) > 0 {
		return
	}
	out.Warned = append(out.Warned, errorsOf(p.waiting)...)
	if len(p.waiting) > 0 {
		lookAgain(out, lookAgainLate)
	}
	out.Next, out.CanaryLife, out.Excused = p.step, s.life(in.Canary), rollout.Excused(decision)
	out.Unnoted += len(s.unnoted(time.Time{}))
	var wait time.Duration
	if out.Discard, wait = s.discardable(time.Now()); wait > 0 {
		lookAgain(out, wait)
	}
}

// When another look may find more to do although nobody tells of a change: Ceph tells nobody when the last data has
// left an OSD.
const lookAgainLate = time.Minute

func lookAgain(out *activities.Survey, after time.Duration) {
	if out.LookAgain == 0 || after < out.LookAgain {
		out.LookAgain = after
	}
}

// discardable are pods that may go without further ado, and how long it takes until there are more of them.
func (s *state) discardable(now time.Time) (names []string, wait time.Duration) {
	for _, p := range s.Invalid {
		switch left := p.MayGoAt().Sub(now); {
		case p.Serving:
		case p.MayServe:
			wait = cmp.Or(min(wait, lookAgainLate), lookAgainLate)
		case left <= 0:
			names = append(names, p.Name)
		case wait == 0 || left < wait:
			wait = left
		}
	}
	return names, wait
}

// skipped are the OSDs that a person excused from the present template, as the status remembers them.
func skipped(u *unstructured.Unstructured, template string) []string {
	of, _, _ := unstructured.NestedString(u.Object, "status", "templateHash")
	names, _, err := unstructured.NestedStringSlice(u.Object, "status", "skipped")
	if err != nil || of != template {
		return nil
	}
	return names
}

// life tells one run of an OSD's daemon from the next; "" as long as it does not serve.
func (s *state) life(key string) string {
	for _, pods := range [][]podspec.Pod{s.UpToDate, s.Ready, s.Unready, s.OutOfDate} {
		for i := range pods {
			if p := &pods[i]; key != "" && p.OSD.Key() == key && s.osd(p.OSD, p).Serves {
				return lifeOf(p.Pod, s.byID[s.ids[key]].UpFrom)
			}
		}
	}
	return ""
}

func lifeOf(p *corev1.Pod, upFrom int64) string {
	life := string(p.UID)
	for i := range p.Status.ContainerStatuses {
		life += fmt.Sprintf("/%d", p.Status.ContainerStatuses[i].RestartCount)
	}
	return fmt.Sprintf("%s/%d", life, upFrom)
}

const mostForeign = 16

// osds is the set as a decision sees it.
func (s *state) osds() (out []rollout.OSD) {
	for _, x := range s.Standings(s.desired, s.nodes) {
		r := s.osd(x.OSD, x.Pod)
		r.State, r.Away = rollout.State(x.State), cmp.Or(r.Away, x.Away)
		out = append(out, r)
	}
	return out
}

// osd is one OSD, but for its state. p is its pod, nil for none.
func (s *state) osd(o podspec.OSD, p *podspec.Pod) rollout.OSD {
	r := rollout.OSD{Key: o.Key(), Host: o.Host}
	id, known := s.ids[o.Key()]
	in := s.byID[id]
	if known {
		r.Name, r.Domain, r.Up, r.Unheard = osdName(id), in.Domain, in.Up, in.Unheard
		r.Unit = rollout.UnitOf(string(s.Domain()), int(s.Spec.MaxParallel), r, in.Location)
	}
	if p == nil {
		return r
	}
	r.Excused = p.Overridden
	r.Serves = p.Ready && known && in.Up && in.UpFrom > upFromBefore(p.Pod)
	switch {
	case r.Serves:
	case s.nodes.Away(o.Host) != "":
		r.Away = s.nodes.Away(o.Host)
	case !known && !s.lone:
		r.Away = "which OSD it is is not known: set POD_NAME in the template's environment, or label its pod " +
			podspec.IDLabel
	}
	return r
}

func rulesOf(set podspec.Set) activities.OSDSetRules {
	r := activities.OSDSetRules{Paused: set.Spec.Paused, ProgressDeadline: activities.DefaultProgressDeadline}
	if d := set.Spec.ProgressDeadline; d != nil {
		r.ProgressDeadline = d.Duration
	}
	if d := set.Spec.PauseBetween; d != nil {
		r.PauseBetween = d.Duration
	}
	if c := set.Spec.Canary; c != nil {
		r.Approval = c.Approval
		if c.Soak != nil {
			r.Soak = c.Soak.Duration
		}
	}
	return r
}

func errorsOf(all []*input.Error) (out []input.Error) {
	for _, e := range all {
		out = append(out, *e)
	}
	return out
}

// clip keeps a text for people short enough for a status.
func clip(s string) string { return input.Clip(s, 250) }

func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }
