package signature

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/openshift/library-go/pkg/verify/store/configmap"
	"github.com/openshift/library-go/pkg/verify/util"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// ManagedNamespace is the namespace of the ConfigMaps with signatures of OpenShift and "oc adm release mirror".
const ManagedNamespace = configmap.NamespaceLabelConfigMap

// maxSignatures limits the signatures of an image that are read from a store.
const maxSignatures = 9

// newClient returns a client for a store, which may redirect to another host, but not to addresses that only this
// machine or its host reaches.
func newClient(store *url.URL) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = oci.GuardedDial(store.Host)
	return &http.Client{Timeout: maxAnswerTime, Transport: transport}
}

// A webStore contains signatures at URL/sha256=HEX/signature-1 and so on. The like store of library-go, sigstore.Store,
// reads responses of any size.
type webStore struct {
	client *http.Client
	url    *url.URL
}

func (w webStore) String() string { return w.url.Redacted() }

func (w webStore) each(ctx context.Context, digest string, try func(string, []byte) bool) error {
	folder, err := util.DigestToKeyPrefix(digest, "=")
	if err != nil {
		return err
	}
	for i := range maxSignatures {
		name := fmt.Sprintf("signature-%d", i+1)
		signature, err := w.get(ctx, w.url.JoinPath(folder, name).String())
		if err != nil || signature == nil {
			return err
		}
		if !try(name, signature) {
			return nil
		}
	}
	return nil
}

// get returns a file of the store; nil if there is none.
func (w webStore) get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := w.client.Do(request)
	if err != nil {
		return nil, printable.RequestError(err)
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusNotFound:
		return nil, nil
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the store answers %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBytes+1)) // unpack refuses a longer one
	if err != nil {
		return nil, printable.RequestError(err)
	}
	return body, nil
}

// configMaps are the ConfigMaps of a namespace that have signatures.
type configMaps struct {
	client    corev1client.ConfigMapsGetter
	namespace string
}

func (c configMaps) String() string { return "ConfigMaps of namespace " + c.namespace }

func (c configMaps) each(ctx context.Context, digest string, try func(string, []byte) bool) error {
	prefix, err := util.DigestToKeyPrefix(digest, "-")
	if err != nil {
		return err
	}
	all, err := c.client.ConfigMaps(c.namespace).List(ctx,
		metav1.ListOptions{LabelSelector: configmap.ReleaseLabelConfigMap})
	if err != nil {
		return err
	}
	for _, configMap := range all.Items {
		for _, key := range slices.Sorted(maps.Keys(configMap.BinaryData)) {
			if strings.HasPrefix(key, prefix) && !try(configMap.Name+" "+key, configMap.BinaryData[key]) {
				return nil
			}
		}
	}
	return nil
}

// A fileStore is a folder that a store would serve, or a file with a ConfigMap, as AddTo writes them.
type fileStore string

func (f fileStore) String() string { return string(f) }

func (f fileStore) each(_ context.Context, digest string, try func(string, []byte) bool) error {
	messages, err := f.read(digest)
	for i, message := range messages {
		if !try(fmt.Sprintf("signature-%d", i+1), message) {
			break
		}
	}
	return err
}

// read returns the messages about an image.
func (f fileStore) read(digest string) (messages [][]byte, err error) {
	if isConfigMapFile(string(f)) {
		_, messages, err = readConfigMap(string(f), digest)
		return messages, err
	}
	folder, err := util.DigestToKeyPrefix(digest, "=")
	for i := 1; err == nil && i <= maxSignatures; i++ {
		message, failed := os.ReadFile(filepath.Join(string(f), folder, fmt.Sprintf("signature-%d", i)))
		if errors.Is(failed, fs.ErrNotExist) {
			break
		}
		messages, err = append(messages, message), failed
	}
	return messages, err
}

// Stores returns the URLs of the signature stores that the policy names.
func (p *Policy) Stores() []string {
	var stores []string
	for _, store := range p.stores {
		stores = append(stores, store.String())
	}
	return stores
}

// Collect returns the OpenPGP signatures of an image in a store, a URL, folder or FILE.yaml, without verifying them: a
// copy of the store has the same ones.
func Collect(ctx context.Context, store, digest string) ([][]byte, error) {
	var from place = fileStore(store)
	if strings.HasPrefix(store, "http://") || strings.HasPrefix(store, "https://") {
		address, err := url.Parse(store)
		if err != nil {
			return nil, fmt.Errorf("%s is not a URL", store)
		}
		from = webStore{newClient(address), address}
	}
	var found [][]byte
	var failed error
	err := from.each(ctx, digest, func(name string, signature []byte) bool {
		if _, err := unpack(signature); err != nil {
			failed = fmt.Errorf("%s %s: %w", from, name, err)
			return false
		}
		found = append(found, signature)
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return found, failed
}

// The name of the ConfigMap with saved signatures, as in OpenShift, and the maximum number of images in it.
const (
	persisted    = "signatures-managed"
	maxPersisted = 64
)

// Persist saves the signatures of an image in a ConfigMap of a namespace, where Verify finds them if a store is down.
func Persist(ctx context.Context, client corev1client.ConfigMapsGetter, namespace, digest string,
	signatures [][]byte) error {
	prefix, err := util.DigestToKeyPrefix(digest, "-")
	if err != nil {
		return err
	}
	known, err := client.ConfigMaps(namespace).Get(ctx, persisted, metav1.GetOptions{})
	isNew := apierrors.IsNotFound(err)
	if err != nil && !isNew {
		return fmt.Errorf("read ConfigMap %s/%s: %w", namespace, persisted, err)
	}
	next := known.DeepCopy()
	next.Name, next.Namespace = persisted, namespace
	metav1.SetMetaDataLabel(&next.ObjectMeta, configmap.ReleaseLabelConfigMap, "")
	next.BinaryData = withSignatures(next.BinaryData, prefix, signatures)
	switch {
	case isNew:
		_, err = client.ConfigMaps(namespace).Create(ctx, next, metav1.CreateOptions{})
	case !equality.Semantic.DeepEqual(known, next):
		_, err = client.ConfigMaps(namespace).Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", namespace, persisted, err)
	}
	return nil
}

// withSignatures returns data with the signatures of an image, and without those of some other images if it has too
// many.
func withSignatures(data map[string][]byte, prefix string, signatures [][]byte) map[string][]byte {
	next := map[string][]byte{}
	for i, group := range signatures {
		next[fmt.Sprintf("%s-%d", prefix, i+1)] = group
	}
	images := map[string]bool{prefix: true}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		image := key[:max(0, strings.LastIndex(key, "-"))]
		if image != prefix && (images[image] || len(images) < maxPersisted) {
			next[key], images[image] = data[key], true
		}
	}
	return next
}
