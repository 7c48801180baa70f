// A publisher and a consumer of nsqjs through a failover, as tests/support/failover_clients.py has them of other libraries:
//
//     node failover.js LOOKUPD_HTTP_PORT NSQD_TCP_PORT NSQD_TCP_PORT

const nsq = require('nsqjs')

const [topic, channel, pauseMs] = ['failover', 'channel', 20]
const [lookupdPort, ...nsqdPorts] = process.argv.slice(2).map(Number)

const reader = new nsq.Reader(topic, channel, {
  lookupdHTTPAddresses: [`127.0.0.1:${lookupdPort}`], lookupdPollInterval: 1, lookupdPollJitter: 0.01, maxInFlight: 10
})
reader.on('error', error => console.error('reader:', error.message))
reader.on('message', message => {
  console.log('GOT', message.body.toString())
  message.finish()
})
reader.connect()

// A writer has one nsqd. When it fails, a writer for the other one takes its place.
let number = 0

function connect (which) {
  const writer = new nsq.Writer('127.0.0.1', nsqdPorts[which])
  let isOver = false
  const next = error => {
    if (isOver) return
    isOver = true
    console.error('writer:', error && error.message)
    writer.close()
    setTimeout(connect, 200, 1 - which)
  }
  writer.on('error', next)
  writer.on('closed', next)
  writer.on('ready', () => publish(writer, next))
  writer.connect()
}

function publish (writer, next) {
  const body = `m${number++}`
  const timer = setTimeout(next, 5000, new Error('no answer'))
  writer.publish(topic, body, error => {
    clearTimeout(timer)
    if (error) return next(error)
    console.log('OK', body)
    setTimeout(publish, pauseMs, writer, next)
  })
}

connect(0)
process.stdin.on('end', () => process.exit(0)).resume()
