package notify

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/runlevel/runlevel/internal/record/lock"
)

// A CloudEvent is an event as it is sent: CloudEvents 1.0, in its structured mode.
type CloudEvent struct {
	SpecVersion string    `json:"specversion"`
	ID          string    `json:"id"`      // the same in each try to deliver the event
	Source      string    `json:"source"`  // the URL of the record
	Type        string    `json:"type"`    // dev.runlevel.release. and the outcome
	Subject     string    `json:"subject"` // the release
	Time        time.Time `json:"time"`    // by the clock of the cluster
	ContentType string    `json:"datacontenttype"`
	Data        Event     `json:"data"`
}

// newCloudEvent returns the document of an event on a release of the cluster at a server's URL.
func newCloudEvent(event Event, server string, now time.Time) CloudEvent {
	return CloudEvent{
		SpecVersion: "1.0", ID: uuid.NewString(), Type: "dev.runlevel.release." + string(event.Outcome),
		Subject: event.Release,
		Source: fmt.Sprintf("%s/api/v1/namespaces/%s/configmaps/%s", strings.TrimSuffix(server, "/"), event.Namespace,
			lock.Name(event.Release)),
		Time: now.UTC(), ContentType: "application/json", Data: event,
	}
}

// harmless escapes what Slack gives a meaning to, and keeps texts of a cluster from calling everybody in a channel.
var harmless = strings.NewReplacer(
	"&", "&amp;", "<", "&lt;", ">", "&gt;",
	"@everyone", "@\u200beveryone", "@channel", "@\u200bchannel", "@here", "@\u200bhere", "@all", "@\u200ball",
)

// slackBody returns the message of an event for an incoming webhook of Slack.
func (c CloudEvent) slackBody() ([]byte, error) {
	text := c.Data.Text
	if c.Data.Cluster != "" {
		text = c.Data.Cluster + ": " + text
	}
	return json.Marshal(map[string]string{"text": harmless.Replace(text)})
}
