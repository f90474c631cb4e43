package cephosd

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/deploy"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// This file tells a rollout that lacks a right which file grants it. Without that the API server's refusals would look
// like one more reason to try again.

// May tells whether an account may do something; the zero account is whoever asks.
type May func(ctx context.Context, who kube.Account, r kube.Right) (bool, error)

// rights are what was found of the worker's own.
type rights struct {
	may May

	mu    sync.Mutex
	asked map[string]time.Time // namespaces in which nothing was missing, by kind
}

// askRightsEvery is how long it counts that nothing was missing: what is granted is seldom taken away.
const askRightsEvery = 10 * time.Minute

// Asking makes these OSDSets look first whether they have the rights that a rollout takes.
func (f *OSDSets) Asking(may May) *OSDSets {
	f.rights = &rights{may: may, asked: map[string]time.Time{}}
	return f
}

// missing says which right a rollout of the set lacks, and how to grant it; nil: none.
func (r *rights) missing(ctx context.Context, ref activities.OSDSetRef) (*input.Error, error) {
	if r == nil || ref.Kind == activities.OSDSetWaiting { // to evict takes what a drain has everywhere
		return nil, nil
	}
	key := string(ref.Kind) + " " + ref.Namespace
	r.mu.Lock()
	fresh := time.Since(r.asked[key]) < askRightsEvery
	r.mu.Unlock()
	if fresh {
		return nil, nil
	}
	missing, err := Missing(ctx, r.may, kube.Account{}, ref.Kind, ref.Namespace)
	if err != nil {
		return nil, err
	}
	if missing != "" {
		return input.Wrong("namespace", ref.Namespace, missing), nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[key] = time.Now()
	return nil, nil
}

// Missing says what an account may not do although a rollout takes it, and which file grants it; "": nothing is
// missing.
func Missing(
	ctx context.Context, may May, who kube.Account, kind activities.OSDSetKind, namespace string,
) (string, error) {
	file, grants := "storage-namespace-cephosd.yaml", deploy.CephOSD
	if kind == activities.OSDSetDeployments {
		file, grants = "storage-namespace-restart-osds.yaml", deploy.RestartOSDs
	}
	needed, err := kube.GrantedBy(grants, namespace)
	if err != nil {
		return "", fmt.Errorf("deploy/%s: %w", file, err)
	}
	var missing []string
	for _, r := range needed {
		switch allowed, err := may(ctx, who, r); {
		case err != nil:
			return "", fmt.Errorf("ask whether it is allowed to %s: %w", r, err)
		case !allowed:
			missing = append(missing, r.String())
		}
	}
	if len(missing) == 0 {
		return "", nil
	}
	return fmt.Sprintf("lockkeeper's worker may not %s: kubectl -n %s apply -f deploy/%s", strings.Join(missing, ", "),
		namespace, file), nil
}
