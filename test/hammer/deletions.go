package hammer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lockkeeper/lockkeeper/test/auditlog"
)

// Deleters delete all pods that a selector selects, again and again, each client in an order of its own, until ctx
// ends: one by one, by force, and all of them by one request. Refused counts what an admission policy forbade, with
// Example as one of its answers.
func Deleters(ctx context.Context, kubeconfig, namespace, selector string, clients int) (Answers, error) {
	return DeletersUntil(ctx, func(Answers) bool { return false }, kubeconfig, namespace, selector, clients)
}

// DeletersUntil is Deleters that ends when there were answers enough, too.
func DeletersUntil(
	ctx context.Context, enough func(Answers) bool, kubeconfig, namespace, selector string, clients int,
) (Answers, error) {
	client, err := connect(kubeconfig)
	if err != nil {
		return Answers{}, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var (
		mu  sync.Mutex // guards all
		all Answers
		wg  sync.WaitGroup
	)
	ask := func(do func() error) {
		err := do()
		if ctx.Err() != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		all.addDeletion(err)
		if enough(all) {
			stop()
		}
	}
	for range clients {
		wg.Go(func() {
			pods := client.CoreV1().Pods(namespace)
			for ctx.Err() == nil {
				list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: selector})
				if err != nil {
					time.Sleep(20 * time.Millisecond)
					continue
				}
				for _, i := range rand.Perm(len(list.Items)) {
					how := metav1.DeleteOptions{}
					if rand.IntN(2) == 0 {
						how.GracePeriodSeconds = ptr.To[int64](0)
					}
					ask(func() error { return pods.Delete(ctx, list.Items[i].Name, how) })
					time.Sleep(2 * time.Millisecond)
				}
				ask(func() error {
					return pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: selector})
				})
			}
		})
	}
	wg.Wait()
	return all, nil
}

func (a *Answers) addDeletion(err error) {
	switch {
	case err == nil:
		a.Granted++
	case apierrors.IsForbidden(err):
		a.Refused++
		a.Example = err.Error()
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		a.Gone++
	default:
		a.Silent++
	}
}

// Deletion is the request to delete pods of a namespace, one or, without a name, several.
type Deletion struct {
	At   time.Time
	By   string
	Name string
}

func (d Deletion) String() string {
	return fmt.Sprintf("%s %s deleted %q", clock(d.At), d.By, d.Name)
}

// Deletions reads the audit log at a path: which deletions of pods of a namespace were granted since then, and how many
// refused.
func Deletions(log, namespace string, since time.Time) (granted []Deletion, refused int, err error) {
	err = auditlog.ReadFiles(log, func(e auditlog.Event) {
		about := e.ObjectRef
		if !strings.HasPrefix(e.Verb, "delete") || e.At.Before(since) || e.DryRun() ||
			about.Resource != "pods" || about.Subresource != "" || about.Namespace != namespace {
			return
		}
		switch {
		case e.Response.Code < 300:
			granted = append(granted, Deletion{At: e.At, By: e.User.Username, Name: about.Name})
		case e.Response.Code == 403:
			refused++
		}
	})
	return granted, refused, err
}
