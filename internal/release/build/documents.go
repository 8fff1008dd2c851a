package build

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/runlevel/runlevel/pkg/payload"
)

// object is an object of JSON.
type object map[string]any

// addDocuments adds the documents about the release to the store, as referrers of its image.
func (b *builder) addDocuments(release *Release) error {
	for _, document := range []struct {
		kind    types.MediaType
		content object
	}{{"application/spdx+json", b.sbom(release)}, {"application/vnd.in-toto+json", b.provenance(release)}} {
		text, err := json.Marshal(document.content)
		if err != nil {
			return err
		}
		if err := release.store.addReferrer(release.Root, document.kind, text); err != nil {
			return err
		}
	}
	release.Documents = release.store.referrers
	return nil
}

// sbom returns a list of the components of the release, and the images that it runs, in the format SPDX 2.3.
func (b *builder) sbom(release *Release) object {
	const whole = "SPDXRef-release"
	digest := release.Root.Digest.Hex
	var packages, relationships []object
	add := func(from, relation, id, name, purpose, sum string, more object) {
		described := object{
			"SPDXID": id, "name": name, "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
			"primaryPackagePurpose": purpose,
			"checksums":             []object{{"algorithm": "SHA256", "checksumValue": sum}},
		}
		maps.Copy(described, more)
		packages = append(packages, described)
		relationships = append(relationships,
			object{"spdxElementId": from, "relationshipType": relation, "relatedSpdxElement": id})
	}
	refers := func(locator string) []object {
		return []object{{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator}}
	}
	add("SPDXRef-DOCUMENT", "DESCRIBES", whole, b.config.Name, "CONTAINER", digest, object{
		"versionInfo":  b.config.Version,
		"externalRefs": refers(fmt.Sprintf("pkg:oci/%s@sha256%%3A%s", b.config.Name, digest)),
	})
	for i, read := range b.components {
		add(whole, "CONTAINS", fmt.Sprintf("SPDXRef-component-%d", i), read.Name, "SOURCE", read.digest(), nil)
	}
	for i, name := range sortedKeys(b.images) {
		image := b.images[name].Image
		add(whole, "DEPENDS_ON", fmt.Sprintf("SPDXRef-image-%d", i), name, "CONTAINER", sumOf(image),
			object{"externalRefs": refers(packageURL(image))})
	}
	return object{
		"SPDXID": "SPDXRef-DOCUMENT", "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0",
		"name":              b.config.Name + "-" + b.config.Version,
		"documentNamespace": fmt.Sprintf("https://runlevel.dev/spdx/%s-%s-%s", b.config.Name, b.config.Version, digest),
		"creationInfo": object{
			"created": b.time.Format(time.RFC3339), "creators": []string{"Tool: runlevel-" + b.options.Builder},
		},
		"packages": packages, "relationships": relationships,
	}
}

// sumOf returns the SHA-256 of an image by digest.
func sumOf(image string) string {
	_, sum, _ := strings.Cut(image, "@sha256:")
	return sum
}

// packageURL returns the package URL of an image by digest.
func packageURL(image string) string {
	repository := payload.RepositoryOf(image)
	return fmt.Sprintf("pkg:oci/%s@sha256%%3A%s?repository_url=%s", strings.ToLower(path.Base(repository)),
		sumOf(image), url.QueryEscape(repository))
}

// buildType is the page that explains the parameters of a build.
const buildType = "https://github.com/runlevel/runlevel/blob/main/docs/release-build.md"

// provenance returns an in-toto statement with SLSA provenance, version 1: from what the release was built. It has no
// time of its own, so that it is the same each time.
func (b *builder) provenance(release *Release) object {
	digest := func(sum string) object { return object{"sha256": sum} }
	var dependencies []object
	for _, read := range b.components {
		dependencies = append(dependencies, object{"name": "component " + read.Name, "digest": digest(read.digest())})
	}
	add := func(name, image string) {
		dependencies = append(dependencies, object{
			"name": name, "uri": packageURL(image), "digest": digest(sumOf(image)),
		})
	}
	for _, name := range sortedKeys(b.images) {
		add("image "+name, b.images[name].Image)
	}
	if base := release.Lock.Base; base != nil {
		add("base", base.Image)
	}
	config := sha256.Sum256(b.config.text)
	parameters := object{
		"config": object{"name": ConfigFile, "digest": digest(hex.EncodeToString(config[:]))},
		"base":   b.options.Base, "time": b.time.Format(time.RFC3339),
	}
	return object{
		"_type": "https://in-toto.io/Statement/v1", "predicateType": "https://slsa.dev/provenance/v1",
		"subject": []object{{"name": b.config.Name, "digest": digest(release.Root.Digest.Hex)}},
		"predicate": object{
			"buildDefinition": object{
				"buildType": buildType, "externalParameters": parameters, "resolvedDependencies": dependencies,
			},
			"runDetails": object{"builder": object{
				"id": "https://github.com/runlevel/runlevel", "version": object{"runlevel": b.options.Builder},
			}},
		},
	}
}
