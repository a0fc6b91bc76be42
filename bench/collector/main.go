// Command collector is the peer: an OpenTelemetry Collector of the parts that a
// log shipper needs, from the modules that the official distribution is made of.
package main

import (
	"log"

	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/storage/filestorage"
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/redactionprocessor"
	"github.com/open-telemetry/opentelemetry-collector-contrib/receiver/filelogreceiver"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

func factories() (otelcol.Factories, error) {
	receivers := filelogreceiver.NewFactory()
	processors := redactionprocessor.NewFactory()
	exporters := otlphttpexporter.NewFactory()
	extensions := filestorage.NewFactory()
	return otelcol.Factories{
		Receivers:  map[component.Type]receiver.Factory{receivers.Type(): receivers},
		Processors: map[component.Type]processor.Factory{processors.Type(): processors},
		Exporters:  map[component.Type]exporter.Factory{exporters.Type(): exporters},
		Extensions: map[component.Type]extension.Factory{extensions.Type(): extensions},
		Telemetry:  otelconftelemetry.NewFactory(),
	}, nil
}

func main() {
	cmd := otelcol.NewCommand(otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "collector", Version: "0.165.0"},
		Factories: factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory()},
			DefaultScheme:     "file",
		}},
	})
	if err := cmd.Execute(); err != nil {
		log.Fatal(err)
	}
}
