# shellcheck shell=bash
# What the examples about Spark have in common beside demonstrate.sh, which they source before this: a small Spark, and
# real servers to stop in the end.
set -euo pipefail

: "${root:?}" "${scratch:?}"

# With these, Java starts sooner.
readonly quick_start="-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"

# Where Kafka's own tools are, by the names that they have in Kafka's bin directory.
PATH=$scratch/bin:$PATH

# What /etc/spark has on a machine where Spark is installed: a session of two cores that says little and leaves nothing.
# The tests add to the options of Java.
configure_spark() {
    mkdir -p conf spark
    export SPARK_LOCAL_DIRS=$scratch/spark PYSPARK_SUBMIT_ARGS="--properties-file $scratch/conf/spark.conf pyspark-shell"
    cat >conf/spark.conf <<-END
		spark.master                    local[2]
		spark.driver.memory             768m
		spark.driver.bindAddress        127.0.0.1
		spark.driver.host               127.0.0.1
		spark.jars                      $(spark_kafka_jars)
		spark.driver.extraJavaOptions   ${SPARK_JAVA_OPTIONS:-$quick_start} -Djava.io.tmpdir=$scratch/spark -Dlog4j2.configurationFile=$scratch/conf/log4j2.properties
		spark.sql.session.timeZone      UTC
		spark.sql.shuffle.partitions    2
		spark.sql.warehouse.dir         $scratch/spark/warehouse
		spark.ui.enabled                false
		spark.ui.showConsoleProgress    false
	END
    sed 's/= warn/= error/' "$root/benchmarks/java/log4j2.properties" >conf/log4j2.properties
    # Or PySpark shows warnings, and says so.
    cat >>conf/log4j2.properties <<-END
		logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
		logger.gateway.level = error
	END
    # Spark looks for formats in directories, and what pip has installed with -e isn't in one of those.
    export PYTHONPATH=$root
    export PYTHONWARNINGS=ignore::FutureWarning # PySpark's, where there is pandas 3
}

# Spark's Kafka source and sink, which PySpark lacks, separated by commas; elsewhere --packages brings them.
spark_kafka_jars() {
    (cd "$root" && python -c 'from benchmarks.kafka_jars import spark_kafka_jars; print(*spark_kafka_jars().iterdir(), sep=",")')
}

# Starts a broker, whose log directory is broker/data, with topics (name=partitions); $broker is where it listens,
# $broker_process what kills it when it ends. The jars of Kafka are fetched the first time.
start_broker() {
    local ready jars
    exec {ready}< <(cd "$root" && exec python -m tests.broker "$scratch/broker" "$@")
    broker_process=$!
    servers+=("$broker_process")
    read -r broker jars <&"$ready" || { echo "the broker did not start" >&2; return 1; }
    exec {ready}<&-
    export broker
    add_tool kafka-console-producer org.apache.kafka.tools.ConsoleProducer "$jars"
}

add_tool() {
    mkdir -p bin
    cat >"bin/$1" <<-END
		#!/bin/sh
		exec java -Xmx256m $quick_start \\
		    -Dlog4j2.configurationFile=$root/benchmarks/java/log4j2.properties -cp '$3/*' $2 "\$@"
	END
    chmod +x "bin/$1"
}

# Starts a Redis server that has on the disk what it acknowledges; $redis is its URL.
start_redis() {
    local port
    port=$(cd "$root" && python -c 'from tests.ports import free_ports; print(*free_ports(1))')
    mkdir redis
    redis-server --port "$port" --bind 127.0.0.1 --dir redis --save '' "$@" >redis/log &
    servers+=($!)
    export redis=redis://127.0.0.1:$port
    until redis-cli -u "$redis" ping >/dev/null 2>&1; do
        kill -0 "${servers[-1]}" || { cat redis/log >&2; return 1; }
        sleep 0.1
    done
}
