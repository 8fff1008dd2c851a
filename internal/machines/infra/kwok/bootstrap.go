package kwok

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
)

// A configReconciler is the controller of KwokConfigs.
type configReconciler struct {
	Client client.Client
}

// SetupConfigsWithManager adds the controller of KwokConfigs to a manager.
func SetupConfigsWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.KwokConfig{}).
		Complete(&configReconciler{Client: mgr.GetClient()})
}

// Reconcile implements reconcile.Reconciler.
func (r *configReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	config := &v1alpha1.KwokConfig{}
	if err := r.Client.Get(ctx, request.NamespacedName, config); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if config.DeletionTimestamp != nil || config.Status.Initialization.DataSecretCreated {
		return ctrl.Result{}, nil
	}
	before := config.DeepCopy()
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: waitingForMachine}
	if !isAwaited(config) {
		secret := secretOf(config)
		if err := r.Client.Create(ctx, secret); err != nil && !apierrors.IsAlreadyExists(err) {
			return ctrl.Result{}, fmt.Errorf("make Secret %s of KwokConfig %s: %w", secret.Name, request, err)
		}
		config.Status.DataSecretName = secret.Name
		config.Status.Initialization.DataSecretCreated = true
		ready.Status, ready.Reason = metav1.ConditionTrue, "DataSecretCreated"
	}
	meta.SetStatusCondition(&config.Status.Conditions, ready)
	if equality.Semantic.DeepEqual(before.Status, config.Status) {
		return ctrl.Result{}, nil
	}
	if err := r.Client.Status().Patch(ctx, config, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("write the status of KwokConfig %s: %w", request, err)
	}
	return ctrl.Result{}, nil
}

// secretOf returns the Secret of a config. Its name contains the UID of the config, so that an existing Secret of that
// name is the config's own, and need not be read.
func secretOf(config *v1alpha1.KwokConfig) *corev1.Secret {
	const longest = 200 // characters, out of 253 with the UID
	name := strings.TrimRight(config.Name[:min(longest, len(config.Name))], "-.")
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: config.Namespace, Name: name + "-" + string(config.UID),
			Labels: map[string]string{clusterv1.ClusterNameLabel: config.Labels[clusterv1.ClusterNameLabel]},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "KwokConfig", Name: config.Name, UID: config.UID,
				Controller: ptr.To(true),
			}},
		},
		Type:       clusterv1.ClusterSecretType,
		StringData: map[string]string{"value": config.Spec.Data, "format": "cloud-config"},
	}
}
