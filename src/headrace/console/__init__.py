"""The web console: pages and a JSON API for any cluster that speaks Kafka's protocol."""
