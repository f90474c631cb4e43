package cli

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// overrides is an API server that takes down what it is asked to do.
type overrides struct {
	pods                         []kube.PodRef
	did                          []string
	letGoErr, noteErr, deleteErr error
	takeBackErr                  error
}

func (o *overrides) WhoAmI(context.Context) (string, error) { return "ada", nil }

func (o *overrides) FindPods(context.Context, string, string) ([]kube.PodRef, error) {
	return o.pods, nil
}

func (o *overrides) LetGo(_ context.Context, pod kube.PodRef, by, reason string) error {
	o.did = append(o.did, "let "+pod.Name+" "+pod.UID+" go: "+by+": "+reason)
	return o.letGoErr
}

func (o *overrides) NoteOverride(_ context.Context, pod kube.PodRef, _, _ string) error {
	o.did = append(o.did, "note "+pod.Name)
	return o.noteErr
}

func (o *overrides) DeletePod(_ context.Context, pod kube.PodRef) error {
	o.did = append(o.did, "delete "+pod.Name)
	return o.deleteErr
}

func (o *overrides) TakeBack(ctx context.Context, pod kube.PodRef) error {
	o.did = append(o.did, "take back "+pod.Name)
	return cmp.Or(ctx.Err(), o.takeBackErr)
}

func TestRestartNow(t *testing.T) {
	all := []string{"let x 1 go: ada: hangs", "note x", "delete x"}
	for name, c := range map[string]struct {
		do   func(*overrides)
		did  []string
		fail string
		said string
	}{
		"as it should": {func(*overrides) {}, all, "", "Pod x of osd.3 is deleted, out of turn."},
		"no pod":       {func(o *overrides) { o.pods = nil }, nil, "osd.3\": has no pod in namespace rook-ceph", ""},
		"two pods": {func(o *overrides) {
			o.pods = append(o.pods, kube.PodRef{Name: "y"})
		}, nil, "has 2 pods in namespace rook-ceph: name one as pod/NAME", ""},
		"not allowed": {func(o *overrides) { o.letGoErr = errors.New("takes the right") }, all[:1], "takes the right", ""},
		"no event":    {func(o *overrides) { o.noteErr = errors.New("no") }, all, "", "is deleted"},
		"not deleted": {
			func(o *overrides) { o.deleteErr = errors.New("no") }, append(slices.Clone(all), "take back x"),
			"delete pod x: no; it waits for its turn as before", "",
		},
		"not deleted, and not taken back": {
			func(o *overrides) { o.deleteErr, o.takeBackErr = errors.New("no"), errors.New("nor this") },
			append(slices.Clone(all), "take back x"),
			"(nor this): kubectl -n rook-ceph annotate pod x lockkeeper.io/go-now-", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := &overrides{pods: []kube.PodRef{{Namespace: "rook-ceph", Name: "x", UID: "1"}}}
			c.do(o)
			command, out, _ := newWorld().command()
			err := command.RestartNow(t.Context(), o,
				RestartNowInput{Namespace: "rook-ceph", Daemon: "osd.3", Now: true, Reason: " hangs "})
			if c.fail == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.fail)
			}
			assert.Equal(t, c.did, o.did)
			assert.Contains(t, out.String(), c.said)
		})
	}
}

// TestRestartNowRefuses what makes no sense, and does nothing.
func TestRestartNowRefuses(t *testing.T) {
	sound := RestartNowInput{Namespace: "rook-ceph", Daemon: "osd.3", Now: true, Reason: "hangs"}
	for says, edit := range map[string]func(*RestartNowInput){
		"DAEMON: \"osd\"":       func(in *RestartNowInput) { in.Daemon = "osd" },
		"DAEMON: \"mgr.a\"":     func(in *RestartNowInput) { in.Daemon = "mgr.a" },
		"DAEMON: \"pod/\"":      func(in *RestartNowInput) { in.Daemon = "pod/" },
		"--now":                 func(in *RestartNowInput) { in.Now = false },
		"--reason: \" \"":       func(in *RestartNowInput) { in.Reason = " " },
		"one line of at most":   func(in *RestartNowInput) { in.Reason = "a\nb" },
		"at most 500 character": func(in *RestartNowInput) { in.Reason = strings.Repeat("a", 501) },
	} {
		in := sound
		edit(&in)
		o := &overrides{pods: []kube.PodRef{{Name: "x"}}}
		command, _, _ := newWorld().command()
		err := command.RestartNow(t.Context(), o, in)
		require.ErrorContains(t, err, says)
		require.Empty(t, o.did)
	}
}

// TestAWordThatWasInterruptedIsTakenBack: also when the person gave up.
func TestAWordThatWasInterruptedIsTakenBack(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := &overrides{
		pods: []kube.PodRef{{Namespace: "rook-ceph", Name: "x", UID: "1"}}, deleteErr: context.Canceled,
	}
	command, _, _ := newWorld().command()
	err := command.RestartNow(ctx, o, RestartNowInput{Namespace: "rook-ceph", Daemon: "osd.3", Now: true, Reason: "hangs"})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "it waits for its turn as before")
}
