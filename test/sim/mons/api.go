package mons

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	storageclient "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/rest/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/sim/kubeapi"
)

// This file is the API server, as much of it as cephmon asks for. Anything else is a nil pointer, at once.

type server struct {
	kubernetes.Interface
	*World
}

func (s server) CoreV1() coreclient.CoreV1Interface          { return coreAPI{World: s.World} }
func (s server) AppsV1() appsclient.AppsV1Interface          { return appsAPI{World: s.World} }
func (s server) StorageV1() storageclient.StorageV1Interface { return storageAPI{World: s.World} }

// ask is one request to the API server.
func (w *World) ask(ctx context.Context, op string, change bool, do func() error) error {
	return w.request(ctx, op, change, func() error {
		if w.away {
			return errAway
		}
		return do()
	})
}

func alreadyThere(resource, name string) error {
	return apierrors.NewAlreadyExists(schema.GroupResource{Resource: resource}, name)
}

// stamped gives an object what the API server gives it.
func (w *World) stamped(o metav1.Object) {
	w.version++
	o.SetResourceVersion(fmt.Sprint(w.version))
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("%s-%d", o.GetName(), w.version)))
		o.SetCreationTimestamp(metav1.Now())
		o.SetGeneration(1)
	}
}

type coreAPI struct {
	coreclient.CoreV1Interface
	*World
}

func (c coreAPI) ConfigMaps(string) coreclient.ConfigMapInterface {
	return configMapsAPI{World: c.World}
}

func (c coreAPI) Secrets(string) coreclient.SecretInterface   { return secretsAPI{World: c.World} }
func (c coreAPI) Services(string) coreclient.ServiceInterface { return servicesAPI{World: c.World} }
func (c coreAPI) Pods(string) coreclient.PodInterface         { return podsAPI{World: c.World} }
func (c coreAPI) Nodes() coreclient.NodeInterface             { return nodesAPI{World: c.World} }

func (c coreAPI) PersistentVolumeClaims(string) coreclient.PersistentVolumeClaimInterface {
	return claimsAPI{World: c.World}
}

// RESTClient answers the one question that is asked without types: is there a CephCluster?
func (c coreAPI) RESTClient() rest.Interface {
	return &fake.RESTClient{
		NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
		Client: fake.CreateHTTPClient(func(r *http.Request) (*http.Response, error) {
			status, body := http.StatusNotFound, "{}"
			err := c.ask(r.Context(), "list CephClusters", false, func() error {
				if c.rook {
					status, body = http.StatusOK, `{"items":[{"metadata":{"name":"rook"}}]}`
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
			return &http.Response{
				StatusCode: status, Header: http.Header{"Content-Type": []string{"application/json"}},
				Body: io.NopCloser(bytes.NewBufferString(body)),
			}, nil
		}),
	}
}

type podsAPI struct {
	coreclient.PodInterface
	*World
}

func (a podsAPI) List(ctx context.Context, _ metav1.ListOptions) (*corev1.PodList, error) {
	out := &corev1.PodList{}
	return out, a.ask(ctx, "list pods", false, func() error {
		for _, name := range sorted(a.pods) {
			if p := a.pods[name]; !p.ghost {
				out.Items = append(out.Items, *p.DeepCopy())
			}
		}
		return nil
	})
}

type nodesAPI struct {
	coreclient.NodeInterface
	*World
}

func (a nodesAPI) List(ctx context.Context, _ metav1.ListOptions) (*corev1.NodeList, error) {
	out := &corev1.NodeList{}
	return out, a.ask(ctx, "list nodes", false, func() error {
		for _, name := range sorted(a.nodes) {
			out.Items = append(out.Items, *a.nodes[name].DeepCopy())
		}
		return nil
	})
}

type claimsAPI struct {
	coreclient.PersistentVolumeClaimInterface
	*World
}

func (a claimsAPI) List(ctx context.Context, _ metav1.ListOptions) (*corev1.PersistentVolumeClaimList, error) {
	out := &corev1.PersistentVolumeClaimList{}
	return out, a.ask(ctx, "list claims", false, func() error {
		for _, name := range sorted(a.claims) {
			out.Items = append(out.Items, *a.claims[name].DeepCopy())
		}
		return nil
	})
}

func (a claimsAPI) Create(
	ctx context.Context, c *corev1.PersistentVolumeClaim, _ metav1.CreateOptions,
) (*corev1.PersistentVolumeClaim, error) {
	return c, a.ask(ctx, "create claim "+c.Name, true, func() error {
		if a.claims[c.Name] != nil {
			return alreadyThere("persistentvolumeclaims", c.Name)
		}
		c := c.DeepCopy()
		a.stamped(c)
		c.Status.Phase = corev1.ClaimPending
		a.claims[c.Name] = c
		return nil
	})
}

func (a claimsAPI) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	return a.ask(ctx, "delete claim "+name, true, func() error {
		c := a.claims[name]
		switch {
		case c == nil:
			return kubeapi.NotFound("persistentvolumeclaims", name)
		case o.Preconditions != nil && o.Preconditions.UID != nil && *o.Preconditions.UID != c.UID:
			return kubeapi.Conflict("persistentvolumeclaims", name)
		}
		a.judgeClaim(c)
		now := metav1.Now()
		c.DeletionTimestamp = &now // it goes when no pod uses it any more
		return nil
	})
}

func (c coreAPI) PersistentVolumes() coreclient.PersistentVolumeInterface {
	return volumesAPI{World: c.World}
}

// volumesAPI has the volumes of claims. There is none that a person has made.
type volumesAPI struct {
	coreclient.PersistentVolumeInterface
	*World
}

func (a volumesAPI) List(ctx context.Context, _ metav1.ListOptions) (*corev1.PersistentVolumeList, error) {
	out := &corev1.PersistentVolumeList{}
	return out, a.ask(ctx, "list volumes", false, func() error {
		for _, name := range sorted(a.claims) {
			if c := a.claims[name]; c.Spec.VolumeName != "" {
				out.Items = append(out.Items, a.volume(c))
			}
		}
		return nil
	})
}

// volume is that of a bound claim.
func (w *World) volume(c *corev1.PersistentVolumeClaim) corev1.PersistentVolume {
	v := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: c.Spec.VolumeName}}
	key, place := corev1.LabelTopologyZone, w.volumes[c.UID]
	if *c.Spec.StorageClassName == onNodes {
		key, place = corev1.LabelHostname, w.host(place)
	}
	v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{place}},
		}}},
	}}
	v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: c.Namespace, Name: c.Name}
	return v
}

type appsAPI struct {
	appsclient.AppsV1Interface
	*World
}

func (a appsAPI) Deployments(string) appsclient.DeploymentInterface {
	return deploymentsAPI{World: a.World}
}

type deploymentsAPI struct {
	appsclient.DeploymentInterface
	*World
}

func (w *World) putDeployment(d *appsv1.Deployment) {
	w.stamped(d)
	w.deployments[d.Name] = d
}

func (a deploymentsAPI) List(ctx context.Context, _ metav1.ListOptions) (*appsv1.DeploymentList, error) {
	out := &appsv1.DeploymentList{}
	return out, a.ask(ctx, "list Deployments", false, func() error {
		for _, name := range sorted(a.deployments) {
			out.Items = append(out.Items, *a.deployments[name].DeepCopy())
		}
		return nil
	})
}

func (a deploymentsAPI) Create(
	ctx context.Context, d *appsv1.Deployment, _ metav1.CreateOptions,
) (*appsv1.Deployment, error) {
	return d, a.ask(ctx, "create "+d.Name, true, func() error {
		if a.deployments[d.Name] != nil {
			return alreadyThere("deployments", d.Name)
		}
		d := d.DeepCopy()
		a.judgeDeployment(d)
		a.putDeployment(d)
		a.tell("%s is made", d.Name)
		return nil
	})
}

func (a deploymentsAPI) Patch(
	ctx context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string,
) (*appsv1.Deployment, error) {
	return nil, a.ask(ctx, "patch "+name, true, func() error {
		had := a.deployments[name]
		if had == nil {
			return kubeapi.NotFound("deployments", name)
		}
		before, err := json.Marshal(had)
		if err != nil {
			return err
		}
		after, err := strategicpatch.StrategicMergePatch(before, data, appsv1.Deployment{})
		if err != nil {
			return err
		}
		next := &appsv1.Deployment{}
		if err := json.Unmarshal(after, next); err != nil {
			return err
		}
		if bytes.Equal(before, after) {
			return nil
		}
		a.judgeRestart(had)
		next.Generation++
		a.putDeployment(next)
		a.tell("%s is changed", name)
		return nil
	})
}

func (a deploymentsAPI) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	return a.ask(ctx, "delete "+name, true, func() error {
		d := a.deployments[name]
		switch {
		case d == nil:
			return kubeapi.NotFound("deployments", name)
		case o.Preconditions != nil && o.Preconditions.UID != nil && *o.Preconditions.UID != d.UID:
			return kubeapi.Conflict("deployments", name)
		}
		a.judgeStop(d)
		delete(a.deployments, name)
		a.tell("%s is deleted", name)
		return nil
	})
}

type storageAPI struct {
	storageclient.StorageV1Interface
	*World
}

func (a storageAPI) StorageClasses() storageclient.StorageClassInterface {
	return classesAPI{World: a.World}
}

type classesAPI struct {
	storageclient.StorageClassInterface
	*World
}

func (a classesAPI) List(ctx context.Context, _ metav1.ListOptions) (*storagev1.StorageClassList, error) {
	out := &storagev1.StorageClassList{}
	return out, a.ask(ctx, "list StorageClasses", false, func() error {
		for _, name := range sorted(a.classes) {
			out.Items = append(out.Items, *a.classes[name].DeepCopy())
		}
		return nil
	})
}

// objects is the API server for objects of ours.
type objects struct {
	client.Client
	*World
}

func (o objects) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	return o.ask(ctx, "read "+key.Name, false, func() error {
		switch into := into.(type) {
		case *v1alpha1.CephMon:
			if o.cephMon == nil || key.Name != Ref.Name {
				return kubeapi.NotFound("cephmons", key.Name)
			}
			o.cephMon.DeepCopyInto(into)
		case *v1alpha1.MaintenancePolicy:
			if key.Name != sim.Key.Name {
				return kubeapi.NotFound("maintenancepolicies", key.Name)
			}
			*into = v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
			into.Spec.Ceph = &v1alpha1.CephSpec{}
			into.Spec.Ceph.Connection.MonEndpoints = v1alpha1.KeyReference{Name: o.endpoints.Name, Key: "data"}
			for _, node := range sorted(o.draining) { // by others than lockkeeper, with whom it goes along
				into.Status.Lease.Queue = append(into.Status.Lease.Queue,
					v1alpha1.LeaseClaim{WorkflowID: jobs.DrainNode.ID(node), Node: node, Observing: true})
			}
		default:
			return fmt.Errorf("the simulated API server does not know %T", into)
		}
		return nil
	})
}

func (o objects) List(ctx context.Context, into client.ObjectList, _ ...client.ListOption) error {
	return o.ask(ctx, "list CephMons", false, func() error {
		if l, ok := into.(*v1alpha1.CephMonList); ok && o.cephMon != nil {
			l.Items = append(l.Items, *o.cephMon.DeepCopy())
		}
		return nil
	})
}

func (o objects) Status() client.SubResourceWriter { return statusAPI{World: o.World} }

type statusAPI struct {
	client.SubResourceWriter
	*World
}

func (a statusAPI) Update(ctx context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	return a.ask(ctx, "report status", true, func() error {
		c, ok := o.(*v1alpha1.CephMon)
		switch {
		case !ok:
			return fmt.Errorf("the simulated API server does not know the status of %T", o)
		case a.cephMon == nil:
			return kubeapi.NotFound("cephmons", o.GetName())
		case c.ResourceVersion != a.cephMon.ResourceVersion:
			return kubeapi.Conflict("cephmons", o.GetName())
		}
		// As JSON keeps it: times have no parts of seconds there.
		text, err := json.Marshal(c.Status)
		if err != nil {
			return err
		}
		status := v1alpha1.CephMonStatus{}
		if err := json.Unmarshal(text, &status); err != nil {
			return err
		}
		a.cephMon.Status = status
		for _, m := range status.Mons {
			a.seen[m.Name] = a.seen[m.Name] || m.InQuorum
		}
		a.stamped(a.cephMon)
		return nil
	})
}
