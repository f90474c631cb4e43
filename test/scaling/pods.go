package scaling

import (
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ReplicaSet has pods with the label app=NAME, which end as soon as they are told to.
func ReplicaSet(name string, replicas int32) *appsv1.ReplicaSet {
	labels := map[string]string{"app": name}
	grace := int64(0)
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{Name: "main", Image: "pause"}},
				},
			},
		},
	}
}

// Pods are the pods of a ReplicaSet.
func (w *World) Pods(namespace, name string) []corev1.Pod {
	w.Helper()
	pods, err := w.Typed.CoreV1().Pods(namespace).List(w.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
	require.NoError(w, err)
	return pods.Items
}

// Forbid makes a budget that allows nothing for the pods of a ReplicaSet, which are as many as there are to be.
func (w *World) Forbid(namespace, name string, labels map[string]string) {
	w.Helper()
	all := intstr.FromInt32(1)
	require.NoError(w, w.Create(w.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &all, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		},
	}))
	w.Await("the budget counts its pod", func() bool {
		b, err := w.Typed.PolicyV1().PodDisruptionBudgets(namespace).Get(w.Context(), name, metav1.GetOptions{})
		require.NoError(w, err)
		return b.Status.CurrentHealthy == 1
	})
}
