package kube

import (
	"context"
	"errors"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
)

// This file looks at the guard of deletions: how it is installed, and what it answers.

// The policies of deploy/guard-deletions/policy.yaml: the one that refuses deletions, those that keep others from
// writing what it goes by, and one that tells what that is.
const (
	GuardOfDeletions = "lockkeeper-guard-deletions"
	GuardOfBudgets   = "lockkeeper-guard-budgets"
	GuardOfOverrides = "lockkeeper-guard-overrides"
	// GuardOfServers refuses nothing: it tells the worker by which budgets an API server decides.
	GuardOfServers = "lockkeeper-guard-servers"
)

// GuardPolicies are all of them.
var GuardPolicies = []string{GuardOfDeletions, GuardOfBudgets, GuardOfOverrides, GuardOfServers}

// DeletionGuard is how the guard of deletions is installed.
type DeletionGuard struct {
	Policies []GuardPolicy
	Bindings []GuardBinding
}

// GuardPolicy is one of the policies.
type GuardPolicy struct {
	Name string
	// Conditions say, in CEL, whom and what the policy is not about.
	Conditions string
}

// Knows tells whether a policy lets an account of lockkeeper's pass, if it has to: none sets overrides.
func (p GuardPolicy) Knows(a Account) bool {
	return p.Name == GuardOfOverrides ||
		strings.Contains(p.Conditions, "'system:serviceaccount:"+a.Namespace+":"+a.Name+"'")
}

// GuardBinding has a policy guard a namespace.
type GuardBinding struct {
	Name, Policy string
	// Namespace is where it guards; "": in no namespace of its own.
	Namespace string
	// Reads is the namespace of the budgets that it reads; "" of those that read none.
	Reads   string
	Actions []string
	// WithoutBudgets is what it does where it finds no budget to read: Allow, or Deny; "" of those that read none.
	WithoutBudgets string
}

// Denies tells whether it refuses anything, and does not only tell of it.
func (b GuardBinding) Denies() bool { return slices.Contains(b.Actions, string(admissionv1.Deny)) }

// Has tells whether a policy is installed.
func (g DeletionGuard) Has(policy string) bool {
	return slices.ContainsFunc(g.Policies, func(p GuardPolicy) bool { return p.Name == policy })
}

// Guards tells whether anything of it is installed but what stays when a guard is taken away: that refuses nothing.
func (g DeletionGuard) Guards() bool {
	return slices.ContainsFunc(g.Policies, func(p GuardPolicy) bool { return p.Name != GuardOfServers }) ||
		slices.ContainsFunc(g.Bindings, func(b GuardBinding) bool { return b.Policy != GuardOfServers })
}

// Binding is the one that has a policy guard a namespace.
func (g DeletionGuard) Binding(policy, namespace string) (GuardBinding, bool) {
	i := slices.IndexFunc(g.Bindings,
		func(b GuardBinding) bool { return b.Policy == policy && b.Namespace == namespace })
	if i < 0 {
		return GuardBinding{}, false
	}
	return g.Bindings[i], true
}

// DeletionGuard reads how the guard is installed. On an API server that does not know such policies (before 1.30) it is
// not.
func (c *Cluster) DeletionGuard(ctx context.Context) (DeletionGuard, error) {
	var out DeletionGuard
	admission := c.typed.AdmissionregistrationV1()
	for _, name := range GuardPolicies {
		p, err := admission.ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return DeletionGuard{}, err
		}
		var text []string
		for _, m := range p.Spec.MatchConditions {
			text = append(text, m.Expression)
		}
		out.Policies = append(out.Policies, GuardPolicy{Name: name, Conditions: strings.Join(text, "\n")})
	}
	list, err := admission.ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return out, nil
	}
	if err != nil {
		return DeletionGuard{}, err
	}
	for i := range list.Items {
		if b := &list.Items[i]; slices.Contains(GuardPolicies, b.Spec.PolicyName) {
			out.Bindings = append(out.Bindings, guardBinding(b))
		}
	}
	return out, nil
}

func guardBinding(b *admissionv1.ValidatingAdmissionPolicyBinding) GuardBinding {
	out := GuardBinding{Name: b.Name, Policy: b.Spec.PolicyName}
	if m := b.Spec.MatchResources; m != nil && m.NamespaceSelector != nil {
		out.Namespace = m.NamespaceSelector.MatchLabels[corev1.LabelMetadataName]
	}
	if b.Spec.ParamRef != nil {
		out.Reads = b.Spec.ParamRef.Namespace
		if a := b.Spec.ParamRef.ParameterNotFoundAction; a != nil {
			out.WithoutBudgets = string(*a)
		}
	}
	for _, a := range b.Spec.ValidationActions {
		out.Actions = append(out.Actions, string(a))
	}
	return out
}

// GuardingBudgets tells of each budget that follows decisions whether it decides deletions, too. A budget that does not
// exist is not there.
func (c *Cluster) GuardingBudgets(ctx context.Context, p *v1alpha1.MaintenancePolicy) (map[string]bool, error) {
	list, err := c.typed.PolicyV1().PodDisruptionBudgets(p.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for i := range list.Items {
		b := &list.Items[i]
		if ours(b) && b.Labels[LabelPolicy] == p.Name && Decided(b.Labels[LabelDaemon]) {
			out[b.Labels[LabelDaemon]] = b.Labels[LabelGuards] == GuardsDeletions
		}
	}
	return out, nil
}

// Deletion is what the API server answers to whoever wants to delete a pod.
type Deletion struct {
	Found bool
	Node  string // where the pod runs; "" if nowhere
	// Owner is what would replace the pod: "ReplicaSet/NAME".
	Owner string
	// Daemon is what the pod runs, by its labels and the namespace's policies: "osd.3", "mon.a", or "".
	Daemon string
	// Terminating: somebody has deleted the pod already.
	Terminating bool
	// Refused is why the guard refuses; "" if it does not.
	Refused string
	// Other is who else refuses, in the API server's words: another policy, a webhook.
	Other string
	// Warned is what the guard would refuse if it did more than warn.
	Warned string
}

// TryDelete asks whether whoever asks may delete a pod, by a dry run: the answer is the guard's own. Who has no right
// to delete pods gets the API server's error.
func (c *Cluster) TryDelete(ctx context.Context, namespace, name string) (Deletion, error) {
	pod, err := c.typed.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Deletion{}, nil
	}
	if err != nil {
		return Deletion{}, err
	}
	policies, err := c.selecting(ctx, namespace)
	if err != nil {
		return Deletion{}, err
	}
	out := Deletion{
		Found: true, Node: pod.Spec.NodeName, Daemon: daemonOf(policies, pod), Terminating: pod.DeletionTimestamp != nil,
	}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		out.Owner = owner.Kind + "/" + owner.Name
	}
	answer := c.typed.CoreV1().RESTClient().Delete().Namespace(namespace).Resource("pods").Name(name).
		Body(&metav1.DeleteOptions{
			DryRun: []string{metav1.DryRunAll}, Preconditions: &metav1.Preconditions{UID: &pod.UID},
		}).Do(ctx)
	for _, w := range answer.Warnings() {
		if sentence, ok := guardsSentence(w.Text); ok {
			out.Warned = sentence
		}
	}
	err = answer.Error()
	switch {
	case err == nil:
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return Deletion{}, nil // it has gone meanwhile
	case !deniedByAdmission(err):
		return Deletion{}, err
	default:
		var ok bool
		if out.Refused, ok = guardsSentence(err.Error()); !ok {
			out.Other = err.Error()
		}
	}
	return out, nil
}

// deniedByAdmission tells an answer of admission from one of authorization. Both are Forbidden, and only the former
// come from behind the latter: policies list what they deny among the causes, webhooks name themselves.
func deniedByAdmission(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	s := status.Status()
	return strings.Contains(s.Message, "admission webhook") ||
		apierrors.IsForbidden(err) && s.Details != nil && len(s.Details.Causes) > 0
}

// seeWhy begins what the guard's sentence ends with: the command that this is.
const seeWhy = ". To see what it waits for: "

// guardsSentence is what the guard says, out of the words in which the API server passes it on.
func guardsSentence(said string) (string, bool) {
	_, rest, ok := strings.Cut(said, "ValidatingAdmissionPolicy '"+GuardOfDeletions+"' with binding ")
	if !ok {
		return "", false
	}
	_, sentence, denied := strings.Cut(rest, "' denied request: ")
	if !denied { // a warning
		_, sentence, _ = strings.Cut(rest, "': ")
	}
	sentence, _, _ = strings.Cut(sentence, seeWhy)
	return sentence, sentence != ""
}
