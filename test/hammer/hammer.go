// Package hammer evicts everything, all the time, and judges afterwards what came of it. It takes nothing from
// lockkeeper: it asks the eviction API as anybody may, and reads the API server's audit log, Ceph's own maps and what
// Ceph says of its data.
package hammer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Answers counts what the eviction API said, by HTTP status.
type Answers struct {
	Granted int // 201
	Refused int // 429
	Gone    int // 404, and 409 for a pod that changed meanwhile
	Failed  int // 500: two budgets over one pod, after which `kubectl drain` gives up
	Silent  int // no answer: the API server was away
	// Example is one of the failures.
	Example string
}

func (a Answers) String() string {
	return fmt.Sprintf("%d granted, %d refused, %d gone, %d failed, %d without an answer %s", a.Granted, a.Refused, a.Gone,
		a.Failed, a.Silent, a.Example)
}

// connect makes a client that nothing slows down.
func connect(kubeconfig string) (kubernetes.Interface, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.UserAgent = -1, "hammer"
	return kubernetes.NewForConfig(cfg)
}

// Clients evict all pods that a selector selects, again and again, each client in an order of its own, until ctx ends.
func Clients(ctx context.Context, kubeconfig, namespace, selector string, clients int) (Answers, error) {
	client, err := connect(kubeconfig)
	if err != nil {
		return Answers{}, err
	}
	var (
		mu  sync.Mutex // guards all
		all Answers
		wg  sync.WaitGroup
	)
	for range clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
				if err != nil {
					time.Sleep(20 * time.Millisecond)
					continue
				}
				rand.Shuffle(len(pods.Items), func(i, j int) { pods.Items[i], pods.Items[j] = pods.Items[j], pods.Items[i] })
				for i := range pods.Items {
					err := Evict(ctx, client, &pods.Items[i], nil)
					if ctx.Err() != nil {
						return
					}
					mu.Lock()
					all.add(err)
					mu.Unlock()
					time.Sleep(2 * time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	return all, nil
}

// Evict asks once. The client library would ask again and again by itself where it is told to wait: for ten seconds if
// a budget is not computed yet, or lets nobody go whatever happens.
func Evict(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, options *metav1.DeleteOptions) error {
	e := &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: options,
	}
	return client.PolicyV1().RESTClient().Post().AbsPath("/api/v1").Namespace(pod.Namespace).Resource("pods").Name(
		pod.Name).SubResource("eviction").
		Body(e).MaxRetries(0).Do(ctx).Error()
}

func (a *Answers) add(err error) {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		a.Granted++
	case apierrors.IsTooManyRequests(err):
		a.Refused++
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		a.Gone++
	case errors.As(err, &status) && status.Status().Code == http.StatusInternalServerError:
		a.Failed++
		a.Example = err.Error()
	default:
		a.Silent++
	}
}
