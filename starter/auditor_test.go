package starter

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// unkept is a Temporal in which no keeper answers.
type unkept struct{ Temporal }

func (unkept) Kept(context.Context, storage.ClusterKey) (workflows.Kept, error) {
	return workflows.Kept{}, errors.New("no worker answers")
}

// refusing fails as often as it has errors, and then takes the write.
type refusing struct {
	fails []error
	tries int
}

func (r *refusing) Disown(context.Context, *v1alpha1.MaintenancePolicy, time.Time, string) error {
	r.tries++
	if r.tries <= len(r.fails) {
		return r.fails[r.tries-1]
	}
	return nil
}

// TestDisownsInOneAudit: a write that fails is tried again at once, since the next audit may be ten seconds away. Where
// somebody else has written the status, the next audit looks at what it says now.
func TestDisownsInOneAudit(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "maintenancepolicies"}, "p", nil)
	for name, c := range map[string]struct {
		fails []error
		tries int
	}{
		"it is written":             {nil, 1},
		"two attempts fail":         {[]error{errors.New("lost"), errors.New("lost")}, 3},
		"somebody else has written": {[]error{conflict}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
			key := storage.ClusterKey{Namespace: "n", Name: "p"}
			statuses := &refusing{fails: c.fails}
			a := Auditor{
				Objects: fake.NewClientBuilder().WithScheme(kube.Scheme).WithObjects(p).Build(), Temporal: unkept{},
				Statuses: statuses, Log: logr.Discard(),
				keeping: map[storage.ClusterKey]Keeping{key: {Good: time.Now().Add(-time.Hour), Ever: true}},
			}
			a.Audit(context.Background())
			require.Equal(t, c.tries, statuses.tries)
		})
	}
}
