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

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/payload"
)

// injection returns the settings of the cluster that manifests may ask for. They are read every few minutes.
func (r *reconciler) injection(ctx context.Context) (payload.Injection, error) {
	if r.injected != nil && time.Since(r.askedSettings) < looksEvery {
		return *r.injected, nil
	}
	found, err := readInjection(ctx, r.cluster)
	if err == nil {
		r.injected, r.askedSettings = &found, time.Now()
	}
	return found, err
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
	found := payload.Injection{HTTPProxy: proxy.Status.HTTPProxy, HTTPSProxy: proxy.Status.HTTPSProxy, NoProxy: proxy.Status.NoProxy}
	if hasServer {
		profile := tlsProfile(server.Spec.TLSSecurityProfile)
		found.MinTLSVersion, found.CipherSuites = string(profile.MinTLSVersion), crypto.OpenSSLToIANACipherSuites(profile.Ciphers)
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

// tlsProfile returns the settings of a security profile; those of the default one for one that says none.
func tlsProfile(asked *configv1.TLSSecurityProfile) *configv1.TLSProfileSpec {
	var profile *configv1.TLSProfileSpec
	switch {
	case asked == nil:
	case asked.Type == configv1.TLSProfileCustomType && asked.Custom != nil:
		profile = &asked.Custom.TLSProfileSpec
	default:
		profile = configv1.TLSProfiles[asked.Type]
	}
	return cmp.Or(profile, configv1.TLSProfiles[crypto.DefaultTLSProfileType])
}
