// longhorn measures how soon it is decided who may leave once a node announces that it does, and what it costs that
// volumes are attached. It plays the autoscaler: it taints a node, and takes the taint back when the others are
// protected. With --alone Longhorn's own manager decides, and is measured by the same rule. One line "name value unit"
// for each figure, see README.md; each event is told on standard error.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/test/bench/figures"
	"github.com/lockkeeper/lockkeeper/test/bench/lab"
)

func main() {
	b := bench{}
	flag.StringVar(&b.namespace, "namespace", "longhorn-system", "of Longhorn and the policy")
	flag.StringVar(&b.policy, "policy", "longhorn", "MaintenancePolicy")
	flag.StringVar(&b.lab, "lab", "", "name of the lab (required)")
	flag.BoolVar(&b.alone, "alone", false, "lockkeeper is not installed, and Longhorn decides")
	events := flag.Int("events", 20, "how many nodes are tainted, and how many are cordoned")
	attaches := flag.Int("attaches", 0, "how often busy-0, busy-1, … are attached or detached, one of them a second")
	pair := flag.String("pair", "", "only compare who may go: the nodes of a volume of two replicas, as in node-a,node-b")
	figures.Main("longhorn", func(ctx context.Context) error { return b.run(ctx, *events, *attaches, *pair) })
}

type bench struct {
	namespace, policy, lab string
	alone                  bool

	api  lab.Lab
	view *view
}

const (
	patience = 2 * time.Minute
	glance   = time.Millisecond // between looks at what was recorded, which has the times
	settles  = 2 * time.Second  // at rest, before something happens
	leaves   = 2 * time.Second  // how long a node goes on to leave when it may
	// unseen is after how long nothing has come of a taint.
	unseen = 10 * time.Second
)

// sign is how a node announces that it is about to leave.
type sign string

const (
	taints  sign = "taint"  // as the Cluster Autoscaler does
	cordons sign = "cordon" // as a drain does
)

func (b *bench) run(ctx context.Context, events, attaches int, pair string) (err error) {
	switch {
	case events < 1:
		return fmt.Errorf("--events %d: must be 1 or more", events)
	case attaches < 0 || attaches%(2*busyVolumes) != 0:
		return fmt.Errorf("--attaches %d: must be a multiple of %d, so that all are detached in the end", attaches,
			2*busyVolumes)
	case b.lab == "":
		return fmt.Errorf("--lab is required")
	}
	if b.api, err = lab.Connect(ctx); err != nil {
		return err
	}
	defer b.api.Temporal.Close()
	if b.view, err = startView(ctx, b.api.Kube, b.namespace); err != nil {
		return err
	}
	if pair != "" {
		return b.beside(ctx, pair)
	}
	for _, s := range []sign{taints, cordons} {
		if b.alone && s == taints {
			if err := b.unseenTaint(ctx); err != nil {
				return err
			}
			continue
		}
		var took []time.Duration
		for i := range events {
			d, err := b.leave(ctx, s, i)
			if err != nil {
				return fmt.Errorf("%s %d: %w", s, i+1, err)
			}
			took = append(took, d)
		}
		figures.Print(b.named(string(s)+"_ms"), took)
	}
	if attaches > 0 {
		return b.attach(ctx, attaches)
	}
	return nil
}

// named is the name of a figure.
func (b *bench) named(figure string) string {
	if b.alone {
		return "longhorn_" + figure
	}
	return figure
}

// leave has a node announce that it leaves, and tells how long it took until it could, and nobody else. Every second
// time it is the node that keeps the volume, so that another one has to.
func (b *bench) leave(ctx context.Context, s sign, i int) (took time.Duration, err error) {
	rest, err := b.atRest(ctx)
	if err != nil {
		return 0, err
	}
	node := rest.keeper
	if i%2 == 1 && !b.alone {
		node = rest.others[i/2%len(rest.others)]
	}
	began := time.Now()
	if err := b.announce(ctx, node, s, true); err != nil {
		return 0, err
	}
	defer func() {
		if undone := b.announce(ctx, node, s, false); err == nil {
			err = undone
		}
	}()
	var at time.Time
	err = b.until(ctx, fmt.Sprintf("the decision that %s may leave", node), func() bool {
		at = b.view.since(began, func(now standing) bool { return now.lets(node, b.alone) })
		return !at.IsZero()
	})
	if err != nil {
		return 0, err
	}
	took = at.Sub(began)
	if err := figures.Pause(ctx, leaves); err != nil {
		return 0, err
	}
	fmt.Fprintf(os.Stderr, "%s of %s, which %s: decided after %s\n", s, node,
		map[bool]string{true: "kept the volume", false: "was spare"}[node == rest.keeper], took.Round(time.Millisecond))
	return took, nil
}

// unseenTaint tells whether Longhorn alone notices a taint of the node that keeps the volume.
func (b *bench) unseenTaint(ctx context.Context) error {
	rest, err := b.atRest(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := b.announce(ctx, rest.keeper, taints, true); err != nil {
		return err
	}
	if err := figures.Pause(ctx, unseen); err != nil {
		return err
	}
	n := 0
	if b.view.since(began, func(now standing) bool { return now.lets(rest.keeper, true) }).IsZero() {
		n = 1
	}
	fmt.Printf("%s %d of_1_taints\n", b.named("unseen"), n)
	return b.announce(ctx, rest.keeper, taints, false)
}

// announce has a node begin, or cease, to announce that it leaves.
func (b *bench) announce(ctx context.Context, node string, s sign, on bool) error {
	patch := fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, on)
	if s == taints {
		patch = `{"spec":{"taints":null}}`
		if on {
			patch = fmt.Sprintf(`{"spec":{"taints":[{"key":"ToBeDeletedByClusterAutoscaler","value":%q,"effect":%q}]}}`,
				strconv.FormatInt(time.Now().Unix(), 10), corev1.TaintEffectNoSchedule)
		}
	}
	_, err := b.api.Kube.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// atRest waits until one node keeps the volume, and the others are as they are while nobody leaves.
func (b *bench) atRest(ctx context.Context) (rest rest, err error) {
	err = b.until(ctx, "the installation to be at rest", func() bool {
		var is bool
		rest, is = b.view.atRest(b.alone, settles)
		return is
	})
	if err != nil {
		return rest, fmt.Errorf("%w: %v", err, b.view.last())
	}
	return rest, nil
}

func (b *bench) until(ctx context.Context, what string, is func() bool) error {
	return lab.Until(ctx, patience, glance, what, func() (bool, error) { return is(), b.view.failed() })
}
