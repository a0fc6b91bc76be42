package main

import (
	"os"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// podEnvironment is what the kubelet makes of the manifest in examples/: the
// downward API's fields and, in plain values, $(NAME) of what stands before.
func podEnvironment(t *testing.T, fields map[string]string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(inExamples("kubernetes", "base", "deployment.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Spec struct {
			Template struct {
				Spec struct {
					InitContainers []struct {
						Name string `yaml:"name"`
						Env  []struct {
							Name      string `yaml:"name"`
							Value     string `yaml:"value"`
							ValueFrom struct {
								FieldRef struct {
									FieldPath string `yaml:"fieldPath"`
								} `yaml:"fieldRef"`
							} `yaml:"valueFrom"`
						} `yaml:"env"`
					} `yaml:"initContainers"`
				} `yaml:"spec"`
			} `yaml:"template"`
		} `yaml:"spec"`
	}
	if err := yaml.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
	for _, c := range manifest.Spec.Template.Spec.InitContainers {
		for _, e := range c.Env {
			value := e.Value
			for name, v := range env {
				value = strings.ReplaceAll(value, "$("+name+")", v)
			}
			if path := e.ValueFrom.FieldRef.FieldPath; path != "" {
				known, ok := fields[path]
				if !ok {
					t.Fatalf("%s of %s: this test does not know what the kubelet says", path, c.Name)
				}
				value = known
			}
			env[e.Name] = value
		}
	}
	return env
}

// What runs in the Pod of examples/kubernetes says which one: each record has
// the service, the host and the Pod in its resource.
func TestRecordsOfThePodNameServiceHostAndPod(t *testing.T) {
	fields := map[string]string{"metadata.name": "agent-5d7f", "metadata.uid": "0e0ad3f1-4dc4-4c5c-9a53-1b6fd3dbb9f5",
		"metadata.namespace": "agents", "spec.nodeName": "node-a"}
	got := exportIn(t, podEnvironment(t, fields), "", inExamples("sessions", "lab-openturn.jsonl"))
	if len(got) == 0 {
		t.Fatal("no record")
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"service.name": "agent", "host.name": host,
		"k8s.pod.name": fields["metadata.name"], "k8s.pod.uid": fields["metadata.uid"], "k8s.namespace.name": fields["metadata.namespace"],
		"k8s.node.name": fields["spec.nodeName"], "k8s.container.name": "otel-bridge",
	}
	for _, r := range got {
		for key, value := range want {
			if r.Resource[key] != value {
				t.Errorf("%s: %s is %v, want %v", r.uid(), key, r.Resource[key], value)
			}
		}
		for _, key := range []string{"service.version", "service.instance.id"} {
			if s, _ := r.Resource[key].(string); s == "" {
				t.Errorf("%s: no %s", r.uid(), key)
			}
		}
		if r.Record.EventName == "" {
			t.Errorf("%s: no event name", r.uid())
		}
	}
}
