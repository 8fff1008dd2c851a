package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/runlevel/runlevel/internal/oci"
)

// authors is the supplier of what is released, in SBOMs.
const authors = "Organization: The Runlevel authors"

// object is an object of JSON.
type object map[string]any

// writeDocuments writes an SBOM and a provenance for each archive and image. "runlevel release build" has attached the
// SBOM of the payload to it.
func writeDocuments(ctx context.Context, d *draft) error {
	for _, packed := range d.archives {
		described := artifact{packed.File, packed.File, packed.SHA256, "pkg:golang/" + module + "@" + d.version}
		if err := d.describe(described, filepath.Join(packed.Contents, "runlevel*")); err != nil {
			return err
		}
	}
	image := artifact{
		d.imageArchive(), d.image, strings.TrimPrefix(d.digest, "sha256:"),
		fmt.Sprintf("pkg:oci/%s@%s?repository_url=%s", strings.ToLower(path.Base(d.image)), url.QueryEscape(d.digest),
			url.QueryEscape(d.image)),
	}
	if err := d.describe(image, filepath.Join(d.programs("linux", "*"), "*")); err != nil {
		return err
	}
	attached, err := d.attachedSBOM(ctx)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(d.folder, d.payloadArchive()+".spdx.json"), attached, 0o644); err != nil {
		return err
	}
	return d.writeProvenance(artifact{
		file: d.payloadArchive(), name: d.image + payloadSuffix, sum: strings.TrimPrefix(d.payload.Digest, "sha256:"),
	})
}

// An artifact is a file of the release, or the image in it: verifiers of images know its digest, and no file.
// Signatures change the file of an image, and not this digest.
type artifact struct {
	file    string
	name    string // of the file or the image
	sum     string // SHA-256 of the file or the image
	locator string // its package URL, for an SBOM
}

// describe writes the SBOM and the provenance of an artifact. A pattern matches its programs.
func (d *draft) describe(described artifact, programs string) error {
	if err := d.writeSBOM(described, programs); err != nil {
		return fmt.Errorf("SBOM of %s: %w", described.file, err)
	}
	return d.writeProvenance(described)
}

// attachedSBOM returns the SBOM in the archive of the payload.
func (d *draft) attachedSBOM(ctx context.Context) ([]byte, error) {
	layout, err := oci.OpenLayout(filepath.Join(d.folder, d.payloadArchive()))
	if err != nil {
		return nil, err
	}
	defer layout.Close()
	described, err := layout.Resolve(ctx, d.payload.SBOM)
	if err != nil {
		return nil, err
	}
	manifest, err := oci.FindImage(ctx, layout, described, v1.Platform{})
	if err != nil {
		return nil, err
	}
	return oci.ReadBlob(ctx, layout, manifest.Layers[0])
}

// writeSBOM writes the modules of programs in the format SPDX 2.3.
func (d *draft) writeSBOM(described artifact, pattern string) error {
	programs, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	versions := map[string]string{} // of modules
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return err
		}
		versions["stdlib"] = strings.TrimPrefix(info.GoVersion, "go")
		for _, module := range info.Deps {
			versions[module.Path] = module.Version
		}
	}
	const whole = "SPDXRef-file"
	newPackage := func(id, name, version, locator string) object {
		return object{
			"SPDXID": id, "name": name, "versionInfo": version, "supplier": "NOASSERTION",
			"downloadLocation": "NOASSERTION", "filesAnalyzed": false,
			"externalRefs": []object{{
				"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator,
			}},
		}
	}
	main := newPackage(whole, described.name, d.version, described.locator)
	main["supplier"] = authors
	main["checksums"] = []object{{"algorithm": "SHA256", "checksumValue": described.sum}}
	main["licenseDeclared"] = "Apache-2.0"
	packages := []object{main}
	relations := []object{{
		"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": whole,
	}}
	for i, name := range slices.Sorted(maps.Keys(versions)) {
		id := fmt.Sprintf("SPDXRef-module-%d", i)
		packages = append(packages, newPackage(id, name, versions[name],
			fmt.Sprintf("pkg:golang/%s@%s", name, url.QueryEscape(versions[name]))))
		relations = append(relations,
			object{"spdxElementId": whole, "relationshipType": "CONTAINS", "relatedSpdxElement": id})
	}
	return d.writeJSON(described.file+".spdx.json", object{
		"SPDXID": "SPDXRef-DOCUMENT", "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "name": described.name,
		"documentNamespace": fmt.Sprintf("%s/releases/download/%s/%s.spdx.json/%s", home, d.version, described.file,
			described.sum),
		"creationInfo": object{
			"created":  d.time.Format(time.RFC3339),
			"creators": []string{authors, "Tool: runlevel-release-" + d.version},
		},
		"packages": packages, "relationships": relations,
	})
}

// writeProvenance writes an in-toto statement with SLSA provenance, version 1, and its sigstore bundle.
func (d *draft) writeProvenance(described artifact) error {
	statement := object{
		"_type": "https://in-toto.io/Statement/v1", "predicateType": "https://slsa.dev/provenance/v1",
		"subject": []object{{"name": described.name, "digest": object{"sha256": described.sum}}},
		"predicate": object{
			"buildDefinition": object{
				"buildType": home + "/blob/main/docs/releasing.md",
				"externalParameters": object{
					"version": d.version, "image": d.image, "time": d.time.Format(time.RFC3339),
					"platforms": d.platforms, "snapshot": d.isSnapshot,
				},
				"resolvedDependencies": []object{{
					"uri": "git+" + home + "@refs/tags/" + d.version, "digest": object{"gitCommit": d.commit},
				}},
			},
			"runDetails": object{"builder": object{"id": home, "version": object{"go": runtime.Version()}}},
		},
	}
	if err := d.writeJSON(described.file+".intoto.json", statement); err != nil || d.isUnsigned {
		return err
	}
	text, err := json.Marshal(statement)
	if err != nil {
		return err
	}
	bundle, err := d.private.Bundle(text)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(d.folder, described.file+".intoto.sigstore.json"), bundle, 0o644)
}

// writeJSON writes a file of the release.
func (d *draft) writeJSON(name string, content object) error {
	text, err := json.MarshalIndent(content, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(d.folder, name), append(text, '\n'), 0o644)
}
