package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/crypto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// clusterSettings are the settings of a cluster that select and change the manifests of a release.
type clusterSettings struct {
	injection payload.Injection
	features  *configv1.FeatureGate // nil where the cluster has none
}

// settingsObjects are the objects with the settings. Their kinds are OpenShift's, and need not be served.
var settingsObjects = []kinds.ID{
	{Group: configv1.GroupName, Kind: "APIServer", Name: "cluster"},
	{Group: configv1.GroupName, Kind: "FeatureGate", Name: "cluster"},
	{Group: configv1.GroupName, Kind: "Infrastructure", Name: "cluster"},
	{Group: configv1.GroupName, Kind: "Proxy", Name: "cluster"},
}

// watchSettings has the settings read again when one of their objects changes. A release may bring their kinds, so the
// watches begin again when a release is complete.
func (a *applier) watchSettings(ctx context.Context) {
	for ctx.Err() == nil {
		for range tombstone.Watch(ctx, a.cluster, settingsObjects) {
			a.settingsChanged.Store(true)
			a.notify()
		}
		select {
		case <-ctx.Done():
		case <-time.After(readsEvery):
		case <-a.completed:
		}
	}
}

// settings returns the settings of the cluster. Those of before stay while they can't be read.
func (r *reconciler) settings(ctx context.Context) (clusterSettings, error) {
	isChanged := r.applier.settingsChanged.Swap(false)
	if r.configured != nil && !isChanged && time.Since(r.configuredAt) < readsEvery {
		return *r.configured, nil
	}
	found, err := readSettings(ctx, r.cluster)
	switch {
	case err == nil:
		r.configured = &found
	case r.configured == nil:
		return found, err
	default:
		ctrl.LoggerFrom(ctx).Info("settings of the cluster not read", "reason", err.Error())
	}
	r.configuredAt = time.Now()
	return *r.configured, nil
}

func readSettings(ctx context.Context, c *cluster.Cluster) (found clusterSettings, err error) {
	if found.injection, err = readInjection(ctx, c); err != nil {
		return found, err
	}
	var gate configv1.FeatureGate
	exists, err := readConfig(ctx, c, "FeatureGate", &gate)
	if exists {
		found.features = &gate
	}
	return found, err
}

// configure applies the settings of the cluster to a target. The features that the operator was started with are those
// of a cluster without FeatureGate.
func (t *target) configure(settings clusterSettings, started Features, v *configv1.ClusterVersion) {
	t.Injection, t.Features = settings.injection, started
	if settings.features == nil {
		return
	}
	version := t.Version
	if version == "" && t.Image == v.Status.Desired.Image {
		version = v.Status.Desired.Version
	}
	t.Features = featuresOf(settings.features, version, t.Previous)
}

// readInjection reads the settings of the cluster. The kinds are OpenShift's: elsewhere there is nothing to inject.
func readInjection(ctx context.Context, c *cluster.Cluster) (payload.Injection, error) {
	var proxy configv1.Proxy
	var server configv1.APIServer
	var infrastructure configv1.Infrastructure
	if _, err := readConfig(ctx, c, "Proxy", &proxy); err != nil {
		return payload.Injection{}, err
	}
	hasServer, err := readConfig(ctx, c, "APIServer", &server)
	if err != nil {
		return payload.Injection{}, err
	}
	if _, err := readConfig(ctx, c, "Infrastructure", &infrastructure); err != nil {
		return payload.Injection{}, err
	}
	found := payload.Injection{
		HTTPProxy:  proxy.Status.HTTPProxy,
		HTTPSProxy: proxy.Status.HTTPSProxy,
		NoProxy:    proxy.Status.NoProxy,
	}
	if hasServer {
		profile := tlsProfile(server.Spec.TLSSecurityProfile)
		found.MinTLSVersion, found.CipherSuites = string(profile.MinTLSVersion),
			crypto.OpenSSLToIANACipherSuites(profile.Ciphers)
	}
	if address, err := url.Parse(infrastructure.Status.APIServerInternalURL); err == nil && address.Hostname() != "" {
		found.APIHost, found.APIPort = address.Hostname(), cmp.Or(address.Port(), "443")
	}
	return found, nil
}

// readConfig reads the object "cluster" of a kind of OpenShift's configuration, and returns whether there is one.
func readConfig(ctx context.Context, c *cluster.Cluster, kind string, into any) (bool, error) {
	resource, err := c.FindKind(ctx, schema.GroupKind{Group: configv1.GroupName, Kind: kind})
	if errors.Is(err, cluster.ErrNotServed) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for %s of OpenShift: %w", kind, err)
	}
	object, err := c.In(resource, "").Get(ctx, "cluster", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s cluster: %w", kind, err)
	}
	return true, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into)
}

// tlsProfile returns the settings of a security profile; those of the default profile if it has none.
func tlsProfile(requested *configv1.TLSSecurityProfile) *configv1.TLSProfileSpec {
	var profile *configv1.TLSProfileSpec
	switch {
	case requested == nil:
	case requested.Type == configv1.TLSProfileCustomType && requested.Custom != nil:
		profile = &requested.Custom.TLSProfileSpec
	default:
		profile = configv1.TLSProfiles[requested.Type]
	}
	return cmp.Or(profile, configv1.TLSProfiles[crypto.DefaultTLSProfileType])
}
