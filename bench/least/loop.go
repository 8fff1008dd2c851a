package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/runlevel/runlevel/bench/internal/api"
	"github.com/runlevel/runlevel/bench/internal/manifests"
)

const (
	metadataAlone = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	// What a definition defines is served a moment after it; this often we look again.
	lookAgain = 25 * time.Millisecond
	patience  = 30 * time.Second
)

// A loop is how to apply a folder.
type loop struct {
	server       *api.Server
	atOnce       int
	metadataOnly bool
	create       bool
	cbor         bool

	places map[api.Kind]api.Place
}

func (l *loop) run(ctx context.Context, folder string) error {
	read, err := l.prepare(ctx, folder)
	if err != nil {
		return err
	}
	var first, then, last []manifests.Manifest
	for _, m := range read {
		switch _, served := l.places[api.Kind{APIVersion: m.APIVersion, Kind: m.Kind}]; {
		case m.Kind == "CustomResourceDefinition":
			if err := l.learn(m); err != nil {
				return fmt.Errorf("%s: %w", m.File, err)
			}
			first = append(first, m)
		case m.Kind == "Namespace":
			first = append(first, m)
		case served:
			then = append(then, m)
		default: // by then, its definition is served
			last = append(last, m)
		}
	}
	return errors.Join(l.sendAll(ctx, first), l.sendAll(ctx, append(then, last...)))
}

// prepare reads the files while the server says what it has.
func (l *loop) prepare(ctx context.Context, folder string) ([]manifests.Manifest, error) {
	var discovered error
	var group sync.WaitGroup
	group.Go(func() { l.places, discovered = l.server.Discover(ctx) })
	read, err := manifests.Read(folder)
	group.Wait()
	return read, errors.Join(err, discovered)
}

// learn notes where the objects of a definition will be.
func (l *loop) learn(m manifests.Manifest) error {
	var definition struct {
		Spec struct {
			Group, Scope string
			Names        struct{ Kind, Plural string }
			Versions     []struct{ Name string }
		}
	}
	if err := json.Unmarshal(m.JSON, &definition); err != nil {
		return err
	}
	spec := definition.Spec
	for _, version := range spec.Versions {
		apiVersion := spec.Group + "/" + version.Name
		l.places[api.Kind{APIVersion: apiVersion, Kind: spec.Names.Kind}] = api.Place{
			Prefix: "/apis/" + apiVersion, Resource: spec.Names.Plural, Namespaced: spec.Scope == "Namespaced",
		}
	}
	return nil
}

// sendAll sends manifests, so many at a time, and says of each that failed why: a line
// with its file.
func (l *loop) sendAll(ctx context.Context, all []manifests.Manifest) error {
	failed := make([]error, len(all))
	next := make(chan int)
	var group sync.WaitGroup
	for range min(l.atOnce, len(all)) {
		group.Go(func() {
			for i := range next {
				if err := l.send(ctx, all[i]); err != nil {
					failed[i] = fmt.Errorf("%s: %s", all[i].File, strings.ReplaceAll(err.Error(), "\n", " "))
				}
			}
		})
	}
	for i := range all {
		next <- i
	}
	close(next)
	group.Wait()
	return errors.Join(failed...)
}

// send sends one, again if its kind is not there yet: then there is no word of what is
// not found.
func (l *loop) send(ctx context.Context, m manifests.Manifest) error {
	request, err := l.request(m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		var refused *api.Refusal
		err := l.server.Do(ctx, request, nil)
		if !errors.As(err, &refused) || refused.Code != http.StatusNotFound || strings.Contains(refused.Message, "namespaces ") {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(lookAgain):
		}
	}
}

func (l *loop) request(m manifests.Manifest) (api.Request, error) {
	place, ok := l.places[api.Kind{APIVersion: m.APIVersion, Kind: m.Kind}]
	if !ok {
		return api.Request{}, fmt.Errorf("the server has no %s in %s", m.Kind, m.APIVersion)
	}
	r := api.Request{
		Method: http.MethodPatch, Path: place.Path(m.Metadata.Namespace, m.Metadata.Name) + "?fieldManager=least&force=true",
		Type: "application/apply-patch+yaml", Accept: api.JSON, Body: m.JSON,
	}
	if l.create {
		r.Method, r.Path, r.Type = http.MethodPost, place.Path(m.Metadata.Namespace, "")+"?fieldManager=least", api.JSON
	}
	if l.metadataOnly {
		r.Accept = metadataAlone
	}
	if !l.cbor {
		return r, nil
	}
	var value any
	if err := json.Unmarshal(m.JSON, &value); err != nil {
		return r, err
	}
	var err error
	r.Body, err = cbor.Marshal(value)
	r.Type = map[bool]string{true: "application/cbor", false: "application/apply-patch+cbor"}[l.create]
	return r, err
}
