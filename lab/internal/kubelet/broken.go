package kubelet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// brokenClasses are storage classes whose storage does not answer.
type brokenClasses struct {
	mended func(class string) // is called when one works again

	mu      sync.Mutex
	classes map[string]bool
}

// check is why a volume of a class can neither be made nor mounted.
func (b *brokenClasses) check(class string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.classes[class] {
		return fmt.Errorf("the storage of class %s does not answer", class)
	}
	return nil
}

func (b *brokenClasses) set(class string, broken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.classes == nil {
		b.classes = map[string]bool{}
	}
	b.classes[class] = broken
}

// BreakStorage has the storage of a class fail: no volume of it is made any more, and none is mounted by a pod that
// starts. Who has mounted one goes on.
func (k *Kubelet) BreakStorage(ctx context.Context, class string) error {
	return k.setBroken(ctx, class, true)
}

// MendStorage ends BreakStorage.
func (k *Kubelet) MendStorage(ctx context.Context, class string) error {
	if err := k.setBroken(ctx, class, false); err != nil {
		return err
	}
	k.broken.mended(class)
	return nil
}

func (k *Kubelet) setBroken(ctx context.Context, class string, broken bool) error {
	list, err := k.Client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for _, c := range list.Items {
		names[c.Name] = true
	}
	if !names[class] {
		return fmt.Errorf("no StorageClass %q: there are %s", class, strings.Join(slices.Sorted(maps.Keys(names)), ", "))
	}
	k.broken.set(class, broken)
	return nil
}
