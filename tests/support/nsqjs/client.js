// Runs nsqjs against an nsqd, as tests/support/real_clients.py runs the libraries for Python: the same messages, the
// same requeues and touches, the same outcome in JSON.
//
//     node client.js PORT '{"topic": ..., "singles": [...], "batches": [[...]], "later": [...], "settings": {...}}'

const nsq = require('nsqjs')

const port = Number(process.argv[2])
const plan = JSON.parse(process.argv[3])
const outcome = { requeued: [], touched: [], finished: [], attempts: {} }

function promised (publish) {
  return new Promise((resolve, reject) => publish(error => (error ? reject(error) : resolve())))
}

async function publishAll (writer) {
  for (const body of plan.singles) await promised(done => writer.publish(plan.topic, body, done))
  for (const batch of plan.batches) await promised(done => writer.publish(plan.topic, batch, done))
  for (const body of plan.later) await promised(done => writer.deferPublish(plan.topic, [body], plan.defer_ms, done))
}

function handle (message) {
  const body = message.body.toString()
  outcome.attempts[body] = message.attempts
  if (body.endsWith('7')) {
    outcome.touched.push(body)
    message.touch()
  }
  if (body.endsWith('3') && message.attempts === 1) {
    outcome.requeued.push(body)
    message.requeue(0, false)
    return
  }
  outcome.finished.push(body)
  message.finish()
}

const writer = new nsq.Writer('127.0.0.1', port, plan.settings)
writer.on('error', fail)
writer.on('ready', () => publishAll(writer).then(consume, fail))
writer.connect()

function consume () {
  const reader = new nsq.Reader(plan.topic, plan.channel, {
    nsqdTCPAddresses: [`127.0.0.1:${port}`], maxInFlight: 50, ...plan.settings
  })
  reader.on('error', fail)
  reader.on('message', message => {
    handle(message)
    if (outcome.finished.length < plan.count) return
    process.stdout.write(JSON.stringify(outcome) + '\n')
    process.stdin.on('end', () => process.exit(0)).resume() // nsqd has the FINs
  })
  reader.connect()
}

function fail (error) {
  console.error(error)
  process.exit(1)
}
