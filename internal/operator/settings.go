package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/crypto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/payload"
)

// clusterSettings are the settings of a cluster that filter and change the manifests of a release.
type clusterSettings struct {
	injection payload.Injection
	features  *configv1.FeatureGate // nil if the cluster has none
}

// settingsObjects are the objects with the settings, in the order of readSettings. Their kinds are OpenShift's, and
// need not be served.
var settingsObjects = []kinds.ID{
	{Group: configv1.GroupName, Kind: "APIServer", Name: "cluster"},
	{Group: configv1.GroupName, Kind: "FeatureGate", Name: "cluster"},
	{Group: configv1.GroupName, Kind: "Infrastructure", Name: "cluster"},
	{Group: configv1.GroupName, Kind: "Proxy", Name: "cluster"},
}

// A settingsReader reads the settings of the cluster, and watches their objects.
type settingsReader struct {
	cluster *cluster.Cluster
	notify  func()      // called when the settings may have changed
	isStale atomic.Bool // the settings may have changed
	// cancelPause ends the pause before the watches that have ended begin again.
	cancelPause atomic.Pointer[context.CancelFunc]

	// The following fields are the controller's one worker's.
	known  *clusterSettings
	readAt time.Time
}

// watch watches the objects with the settings until ctx ends. A release may define their kinds, so the watches begin
// again after restart.
func (s *settingsReader) watch(ctx context.Context) error {
	for ctx.Err() == nil {
		pause, cancel := context.WithCancel(ctx)
		s.cancelPause.Store(&cancel)
		for range tombstone.Watch(ctx, s.cluster, settingsObjects) {
			s.isStale.Store(true)
			s.notify()
		}
		object.Pause(pause, readsEvery)
		cancel()
	}
	return nil
}

// restart begins the watches again that have ended because their kinds were not served.
func (s *settingsReader) restart() {
	if cancel := s.cancelPause.Load(); cancel != nil {
		(*cancel)()
	}
}

// read returns the settings of the cluster. While they can't be read, it returns those of the last time.
func (s *settingsReader) read(ctx context.Context) (clusterSettings, error) {
	isStale := s.isStale.Swap(false)
	if s.known != nil && !isStale && time.Since(s.readAt) < readsEvery {
		return *s.known, nil
	}
	found, err := readSettings(ctx, s.cluster)
	switch {
	case err == nil:
		s.known = &found
	case s.known == nil:
		return found, err
	default:
		ctrl.LoggerFrom(ctx).Info("settings of the cluster not read", "reason", err.Error())
	}
	s.readAt = time.Now()
	return *s.known, nil
}

// readSettings reads the settings of the cluster. Their kinds are OpenShift's: other clusters have none.
func readSettings(ctx context.Context, c *cluster.Cluster) (found clusterSettings, err error) {
	var proxy configv1.Proxy
	var server configv1.APIServer
	var infrastructure configv1.Infrastructure
	var gate configv1.FeatureGate
	exists := map[any]bool{}
	objects := []any{&server, &gate, &infrastructure, &proxy}
	for i, object := range objects {
		if exists[object], err = readConfig(ctx, c, settingsObjects[i], object); err != nil {
			return found, err
		}
	}
	found.injection = payload.Injection{
		HTTPProxy: proxy.Status.HTTPProxy, HTTPSProxy: proxy.Status.HTTPSProxy, NoProxy: proxy.Status.NoProxy,
	}
	if exists[&server] {
		profile := tlsProfile(server.Spec.TLSSecurityProfile)
		found.injection.MinTLSVersion = string(profile.MinTLSVersion)
		found.injection.CipherSuites = crypto.OpenSSLToIANACipherSuites(profile.Ciphers)
	}
	if address, err := url.Parse(infrastructure.Status.APIServerInternalURL); err == nil && address.Hostname() != "" {
		found.injection.APIHost, found.injection.APIPort = address.Hostname(), cmp.Or(address.Port(), "443")
	}
	if exists[&gate] {
		found.features = &gate
	}
	return found, nil
}

// configure applies the settings of the cluster to a target. A cluster without a FeatureGate has the features that the
// operator was started with.
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

// readConfig reads an object of OpenShift's configuration, and reports whether it exists.
func readConfig(ctx context.Context, c *cluster.Cluster, id kinds.ID, into any) (exists bool, err error) {
	resource, err := c.FindKind(ctx, id.GroupKind())
	switch {
	case errors.Is(err, cluster.ErrNotServed):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for %s of OpenShift: %w", id.Kind, err)
	}
	object, err := c.In(resource, "").Get(ctx, id.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read %s %s: %w", id.Kind, id.Name, err)
	}
	return true, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into)
}

// tlsProfile returns the settings of a security profile, or those of the default profile.
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

// Features are the feature set of a cluster, and its enabled feature gates. Empty fields filter like those of
// payload.Filter.
type Features struct {
	Set   string
	Gates []string
}

// featuresOf returns the features of FeatureGate "cluster" for a release: the gates of the first of some versions that
// its status lists. If the status lists none of these versions, a custom feature set has the gates of its spec.
func featuresOf(gate *configv1.FeatureGate, versions ...string) Features {
	found := Features{Set: cmp.Or(string(gate.Spec.FeatureSet), payload.DefaultFeatureSet), Gates: []string{}}
	for _, name := range enabledGates(gate, versions) {
		found.Gates = append(found.Gates, string(name))
	}
	slices.Sort(found.Gates)
	return found
}

func enabledGates(gate *configv1.FeatureGate, versions []string) (enabled []configv1.FeatureGateName) {
	for _, version := range versions {
		for _, details := range gate.Status.FeatureGates {
			if details.Version != version || version == "" {
				continue
			}
			for _, attributes := range details.Enabled {
				enabled = append(enabled, attributes.Name)
			}
			return enabled
		}
	}
	if gate.Spec.FeatureSet == configv1.CustomNoUpgrade && gate.Spec.CustomNoUpgrade != nil {
		return gate.Spec.CustomNoUpgrade.Enabled
	}
	return nil
}
